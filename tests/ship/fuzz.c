/* For libFuzzer (`make fuzz`), and one file after the other where FILES is defined: a file of a model, of weights, or of several targets as it is, and with its sums made right, so that what comes after them is reached. */
#include "reads.h"

static void try(const unsigned char* data, size_t bytes, int again) {
  void* copy = NULL; /* to the byte, so that the sanitizer sees what goes over its end */
  if (posix_memalign(&copy, 64, bytes ? bytes : 1)) abort();
  if (bytes) memcpy(copy, data, bytes);
  int good;
  if (try_other(copy, bytes, again, &good)) {
    free(copy);
    return;
  }
  if (again) sum_again(copy, bytes);
  checked_file checked;
  char words[512] = "";
  if (check_file(copy, bytes, &checked, words, sizeof words))
    must(words[0] != 0, "nothing was said");
  else
    (void)read_all(&checked);
  free(copy);
}

int LLVMFuzzerTestOneInput(const unsigned char* data, size_t bytes) {
  try(data, bytes, 0);
  try(data, bytes, 1);
  return 0;
}

#ifdef FILES
int main(int argc, char** argv) {
  static unsigned char whole[1 << 16];
  for (int i = 1; i < argc; ++i) {
    FILE* f = fopen(argv[i], "rb");
    if (!f) return 2;
    const size_t bytes = fread(whole, 1, sizeof whole, f);
    fclose(f);
    LLVMFuzzerTestOneInput(whole, bytes);
  }
  return 0;
}
#endif
