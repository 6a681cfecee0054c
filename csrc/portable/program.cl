// Texts of program.cpp, in the dialect of docs/portable.md: `////` begins one, with its name. Loops around BODY, which knows u
// and, but in `count`, its coordinates: the last one is U_LAST, below U_SIZE. U_WALK declares the others, U_OFFSETS where
// tensors have this place.

//// count
for (idx u = FIRST(u_count), u_end = LAST(u_count); u < u_end; u += STEP) {
BODY
}

//// rows: on CPUs, so that coordinates are found once for each row
for (idx u = FIRST(u_count), u_end = LAST(u_count); u < u_end;) {
  idx u_row = u / U_SIZE;
  idx U_LAST = u - u_row * U_SIZE;
  U_WALK
  for (; U_LAST < U_SIZE && u < u_end; ++U_LAST, ++u) {
    U_OFFSETS
BODY
  }
}

//// elements
for (idx u = FIRST(u_count), u_end = LAST(u_count); u < u_end; u += STEP) {
  idx u_row = u / U_SIZE;
  const idx U_LAST = u - u_row * U_SIZE;
  U_WALK
  U_OFFSETS
BODY
}
