/* damage FILE COUNT: the checks of run/check.c on COUNT damaged copies of a file, under the sanitizers. Of two in three
 * the sums are made right again, as someone who means harm would: then sizes, indices and places must hold on their own.
 * Every byte of what passed is then read. Prints how many were refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static uint64_t state = 88172645463325252u;
static uint64_t next(uint64_t below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return below ? state % below : 0;
}

static void sum_again(unsigned char* file, uint64_t bytes) {
  file_header* h = (file_header*)file;
  if (bytes < sizeof *h) return;
  h->bytes = bytes;
  file_section* s = (file_section*)(file + sizeof *h);
  const uint64_t sections = h->sections < 12 ? h->sections : 12;
  if (bytes < sizeof *h + 12 * sizeof *s) return;
  for (uint64_t i = 0; i < sections; ++i)
    if (s[i].offset <= bytes && s[i].bytes <= bytes - s[i].offset) s[i].crc = crc32_of(file + s[i].offset, s[i].bytes);
  h->table_crc = crc32_of(s, 12 * sizeof *s);
  h->header_crc = 0;
  h->header_crc = crc32_of(h, sizeof *h);
}

/* What the runtime reads of a file that passed. */
static uint64_t read_all(const checked_file* f) {
  uint64_t sum = strlen(f->strings + f->target->vendor) + strlen(f->strings + f->target->about);
  for (uint64_t i = 0; i < f->n_texts; ++i)
    for (uint32_t p = 0; p < f->texts[i].pieces; ++p) {
      const file_piece* piece = &f->pieces[f->texts[i].piece + p];
      sum += crc32_of(f->strings + piece->string, piece->bytes);
    }
  for (uint64_t i = 0; i < f->n_functions; ++i) sum += strlen(f->strings + f->functions[i].name);
  for (uint64_t i = 0; i < f->n_steps; ++i) {
    sum += strlen(f->strings + f->steps[i].name) + strlen(f->strings + f->steps[i].line);
    for (uint32_t k = 0; k < f->steps[i].arguments; ++k) {
      const file_argument* a = &f->arguments[f->steps[i].argument + k];
      if (a->kind == VALUE) sum += crc32_of(f->values + a->place, a->of);
      if (a->kind == ADDRESS && f->buffers[a->of].kind == CONSTANT && f->buffers[a->of].bytes)
        sum += crc32_of(f->constants + f->buffers[a->of].place, f->buffers[a->of].bytes);
    }
  }
  for (uint64_t i = 0; i < f->n_ports; ++i) {
    sum += strlen(f->strings + f->ports[i].name);
    if (f->ports[i].vector != NO_VECTOR) sum += crc32_of(f->vectors + f->ports[i].vector, f->ports[i].bytes);
  }
  return sum;
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
      const file_section* s = &table[next(12)];
      uint64_t at = next(3) ? s->offset + next(s->bytes ? s->bytes : 1) : next(2) ? next(512) : next(bytes);
      if (next(2)) at -= at % 4;
      if (at + 8 > bytes) at = bytes - 8;
      static const uint64_t values[] = {0, 1, 63, 64, 65535, 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, INT64_MAX};
      const uint64_t value = next(3) ? values[next(10)] : next(0);
      memcpy((char*)copy + at, &value, next(2) ? 4 : next(2) ? 8 : 1);
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
