/* damage FILE COUNT: the checks of run/check.c on COUNT damaged copies of a file, under the sanitizers. Of two in three
 * the sums are made right again, as someone who means harm would: then sizes, indices and places must hold on their own.
 * Every byte of what passed is then read. Prints how many were refused. */
#include "reads.h"

static uint64_t state = 88172645463325252u;
static uint64_t next(uint64_t below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return below ? state % below : 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  FILE* f = fopen(argv[1], "rb");
  if (!f) return 2;
  fseek(f, 0, SEEK_END);
  const uint64_t whole = (uint64_t)ftell(f);
  rewind(f);
  unsigned char* original = malloc(whole);
  if (!original || fread(original, 1, whole, f) != whole) return 2;
  fclose(f);
  const int is_model = !memcmp(original, FILE_MAGIC, 8);
  const uint64_t sections = !is_model ? 0 : ((const file_header*)original)->sections;
  uint64_t refused = 0, read = 0;
  const long count = strtol(argv[2], NULL, 10);
  for (long i = 0; i < count; ++i) {
    const uint64_t bytes = i % 3 == 2 ? whole : next(10) ? whole : next(whole + 1);
    /* To the byte, so that the sanitizer sees what goes over its end. */
    void* copy = NULL;
    if (posix_memalign(&copy, 64, bytes ? bytes : 1)) return 2;
    memcpy(copy, original, bytes);
    const file_section* table = (const file_section*)(original + sizeof(file_header));
    for (uint64_t k = 1 + next(4); k-- && bytes >= 8;) {
      const file_section* s = sections ? &table[next(sections)] : NULL;
      uint64_t at = s && next(3) ? s->offset + next(s->bytes ? s->bytes : 1) : next(2) ? next(512) : next(bytes);
      if (next(2)) at -= at % 4;
      if (at + 8 > bytes) at = bytes - 8;
      static const uint64_t values[] = {0, 1, 63, 64, 65535, 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, INT64_MAX};
      const uint64_t value = next(3) ? values[next(10)] : next(0);
      memcpy((char*)copy + at, &value, next(2) ? 4 : next(2) ? 8 : 1);
    }
    int good = 0;
    if (!is_model) { /* one whose first bytes were damaged is neither, and refused */
      (void)try_other(copy, bytes, i % 3 != 0, &good);
      refused += !good, read += good != 0;
      free(copy);
      continue;
    }
    if (i % 3) sum_again(copy, bytes);
    checked_file checked;
    char words[512] = "";
    if (check_file(copy, bytes, &checked, words, sizeof words)) {
      refused += words[0] != 0;
    } else {
      read += read_all(&checked) != 1;
    }
    free(copy);
  }
  printf("%llu refused, %llu read\n", (unsigned long long)refused, (unsigned long long)read);
  free(original);
  return refused + read == (uint64_t)count ? 0 : 1;
}
