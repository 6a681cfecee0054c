/* What the runtime reads of a file that passed its checks, for tests under sanitizers: what is outside of the file is found
 * there, and what leads out of a buffer at some size ends the process here. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Make the sums of a file right again, as someone who means harm would. */
static void sum_again(unsigned char* file, uint64_t bytes) {
  file_header* h = (file_header*)file;
  if (bytes < sizeof *h) return;
  h->bytes = bytes;
  file_section* s = (file_section*)(file + sizeof *h);
  const uint64_t wanted = sections_of(h->version) ? sections_of(h->version) : SECTIONS_END - 1;
  const uint64_t sections = h->sections < wanted ? h->sections : wanted;
  if (bytes < sizeof *h + wanted * sizeof *s) return;
  for (uint64_t i = 0; i < sections; ++i)
    if (s[i].offset <= bytes && s[i].bytes <= bytes - s[i].offset)
      s[i].crc = crc32_of(0, file + s[i].offset, s[i].bytes);
  h->table_crc = crc32_of(0, s, wanted * sizeof *s);
  h->header_crc = 0;
  h->header_crc = crc32_of(0, h, sizeof *h);
}

static void must(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "a file passed, and %s\n", what);
  abort();
}

/* At `size`, all that a profile patches is where it may be. */
static void read_profile(const checked_file* f, const file_profile* p, uint64_t size) {
  file_step* steps = malloc((f->n_steps + 1) * sizeof *steps);
  uint64_t* places = malloc((f->n_arguments + 1) * sizeof *places);
  if (!steps || !places) abort();
  if (f->n_steps) memcpy(steps, f->steps, f->n_steps * sizeof *steps);
  for (uint64_t i = 0; i < f->n_arguments; ++i) places[i] = f->arguments[i].place;
  for (uint32_t i = 0; i < p->patches; ++i) {
    const file_patch* patch = &f->patches[p->patch + i];
    const int64_t n = patched(f, patch, p->first, size);
    if (patch->what == GRID) {
      must(n > 0 && n <= (int64_t)UINT32_MAX, "a grid is none");
    } else if (patch->what == BYTES) {
      steps[patch->of].bytes = (uint64_t)n;
    } else if (patch->what == PLACE) {
      places[patch->of] = (uint64_t)n;
    } else if (patch->what == OPERATIONS || patch->what == MOVED) {
      must(patch->of < f->n_costs && n >= 0 && (uint64_t)n <= MOST_COST, "a step computes less than nothing");
    } else {
      must(patch->what == WORD || patch->what == HALF_WORD, "an expression is of nothing");
      must(patch->place + (patch->what == WORD ? 8 : 4) <= f->arguments[patch->of].of,
           "a value is written past its end");
    }
  }
  for (uint64_t i = p->step; i < (uint64_t)p->step + p->steps; ++i)
    for (uint32_t k = 0; k < steps[i].arguments; ++k) {
      const uint64_t at = (uint64_t)steps[i].argument + k;
      if (f->arguments[at].kind != ADDRESS) continue;
      const uint64_t room = f->buffers[f->arguments[at].of].bytes;
      must(places[at] <= room, "an address is outside of its buffer");
      if (steps[i].kind != LAUNCH) must(steps[i].bytes <= room - places[at], "a copy is outside of its buffer");
    }
  free(steps), free(places);
}

static uint64_t read_all(const checked_file* f) {
  uint64_t sum = strlen(f->strings + f->target->vendor) + strlen(f->strings + f->target->about);
  for (uint64_t i = 0; i < f->n_texts; ++i)
    for (uint32_t p = 0; p < f->texts[i].pieces; ++p) {
      const file_piece* piece = &f->pieces[f->texts[i].piece + p];
      sum += crc32_of(0, f->strings + piece->string, piece->bytes);
    }
  for (uint64_t i = 0; i < f->n_binaries; ++i) {
    const file_binary* b = &f->binaries[i];
    must(b->text < f->n_texts, "a binary is of no source");
    sum += strlen(f->strings + b->key) + crc32_of(0, f->made + b->place, b->bytes);
  }
  for (uint64_t i = 0; i < f->n_functions; ++i) sum += strlen(f->strings + f->functions[i].name);
  for (uint64_t i = 0; i < f->n_steps; ++i) {
    sum += strlen(f->strings + f->steps[i].name) + strlen(f->strings + f->steps[i].line);
    for (uint32_t k = 0; k < f->steps[i].arguments; ++k) {
      const file_argument* a = &f->arguments[f->steps[i].argument + k];
      if (a->kind == VALUE) sum += crc32_of(0, f->values + a->place, a->of);
      if (a->kind == ADDRESS && f->buffers[a->of].kind == CONSTANT && f->buffers[a->of].bytes && !f->elsewhere)
        sum += crc32_of(0, f->constants + f->buffers[a->of].place, f->buffers[a->of].bytes);
    }
  }
  for (uint64_t i = 0; i < f->n_buffers; ++i) {
    const file_buffer* b = &f->buffers[i];
    if (b->kind != CONSTANT || !b->bytes || (!f->elsewhere && !f->n_weights)) continue;
    const file_weight* w = weight_of(f, b);
    must(w && b->place >= w->place && b->place - w->place <= w->bytes && b->bytes <= w->bytes - (b->place - w->place),
         "a buffer is not all in one part of the weights");
    sum += w->digest[0];
  }
  for (uint64_t i = 0; i < f->n_weights && !f->elsewhere; ++i)
    sum += crc32_of(0, f->constants + f->weights[i].place, f->weights[i].bytes);
  if (f->elsewhere) {
    const char* name = f->strings + f->elsewhere->name;
    must(name[0] && name[0] != '/' && strncmp(name, "../", 3) != 0 && strcmp(name, "..") != 0 &&
             !strstr(name, "/../") && (strlen(name) < 3 || strcmp(name + strlen(name) - 3, "/..") != 0),
         "the weights are in a file that may be anywhere");
  }
  for (uint64_t i = 0; i < f->n_ports; ++i) {
    const uint64_t bytes = f->size ? bytes_at(f, i, f->size->example) : f->ports[i].bytes;
    sum += strlen(f->strings + f->ports[i].name);
    must(bytes <= f->ports[i].bytes, "an input or output is larger than the most");
    if (f->ports[i].vector != NO_VECTOR) sum += crc32_of(0, f->vectors + f->ports[i].vector, bytes);
    if (f->size) must(bytes_at(f, i, f->size->most) <= f->ports[i].bytes, "an input or output is larger than the most");
    if (f->size)
      must(bytes_at(f, i, f->size->least) <= f->ports[i].bytes, "an input or output is larger than the most");
  }
  if (f->size) sum += strlen(f->strings + f->size->name);
  for (uint64_t i = 0; i < f->n_profiles; ++i) {
    const file_profile* p = &f->profiles[i];
    for (uint64_t part = 0; part < 5; ++part) read_profile(f, p, p->first + (p->last - p->first) * part / 4);
  }
  if (f->n_costs) {
    file_cost* costs = malloc(f->n_steps * sizeof *costs);
    if (!costs) abort();
    for (uint64_t part = 0; part < 3; ++part) {
      costs_at(f, f->size ? f->size->least + (f->size->most - f->size->least) * part / 2 : 0, costs);
      for (uint64_t i = 0; i < f->n_steps; ++i)
        must(costs[i].operations <= MOST_COST && costs[i].bytes <= MOST_COST, "a step computes more than any can");
    }
    free(costs);
  }
  for (uint64_t i = 0; i < f->n_checks; ++i) {
    const file_check* c = &f->checks[i];
    sum += crc32_of(0, f->vectors + c->vector, c->count * bytes_of(c->dtype));
    must(((c->count - 1) * c->stride + 1) * bytes_of(c->dtype) <= f->buffers[f->arguments[c->argument].of].bytes,
         "a check is outside of its buffer");
  }
  return sum;
}

/* A weights file as it is, or with its sums made right: what passed leads to no byte outside of it. */
static int try_weights(unsigned char* file, uint64_t bytes, int again) {
  weights_header* h = (weights_header*)file;
  if (again && bytes >= sizeof *h) {
    if (h->index <= bytes && h->entries <= (bytes - h->index) / sizeof(file_weight))
      h->index_crc = crc32_of(0, file + h->index, h->entries * sizeof(file_weight));
    h->header_crc = 0;
    h->header_crc = crc32_of(0, h, sizeof *h);
  }
  char words[512] = "";
  weights_header header;
  if (check_weights_header(file, bytes, &header, words, sizeof words))
    return must(words[0] != 0, "nothing was said"), 0;
  const file_weight* index = (const file_weight*)(file + header.index);
  if (check_weights_index(&header, index, words, sizeof words)) return must(words[0] != 0, "nothing was said"), 0;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < header.entries; ++i) {
    must(find_weight(index, header.entries, index[i].digest) == &index[i], "an entry is not found");
    if (i < 64) sum += crc32_of(0, file + index[i].place, index[i].bytes);
  }
  return sum != 1;
}

/* The same of a model for several chips: each of its images, and its weights. */
static int try_targets(unsigned char* file, uint64_t bytes, int again) {
  targets_header* h = (targets_header*)file;
  file_image* table = (file_image*)(file + sizeof *h);
  if (again && bytes >= sizeof *h) {
    const uint64_t room = (bytes - sizeof *h) / sizeof *table, n = h->count < room ? h->count : room;
    h->bytes = bytes;
    for (uint64_t i = 0; i < n; ++i)
      if (table[i].place % 64 == 0 && table[i].place <= bytes && table[i].bytes <= bytes - table[i].place)
        sum_again(file + table[i].place, table[i].bytes);
    h->table_crc = crc32_of(0, table, n * sizeof *table);
    h->header_crc = 0;
    h->header_crc = crc32_of(0, h, sizeof *h);
  }
  char words[512] = "";
  targets_header header;
  file_image images[MOST_TARGETS];
  if (check_targets(file, bytes, &header, images, words, sizeof words))
    return must(words[0] != 0, "nothing was said"), 0;
  int good = 1;
  for (uint32_t i = 0; i < header.count; ++i) {
    checked_file f;
    words[0] = 0;
    if (check_file(file + images[i].place, images[i].bytes, &f, words, sizeof words))
      must(words[0] != 0, "nothing was said"), good = 0;
    else
      (void)read_all(&f);
  }
  if (header.weights_bytes) good &= try_weights(file + header.weights, header.weights_bytes, again);
  return good;
}

/* Whether a file that is no model's was tried; `good` says whether it passed. */
static int try_other(unsigned char* file, uint64_t bytes, int again, int* good) {
  if (bytes >= 8 && !memcmp(file, WEIGHTS_MAGIC, 8)) return *good = try_weights(file, bytes, again), 1;
  if (bytes >= 8 && !memcmp(file, TARGETS_MAGIC, 8)) return *good = try_targets(file, bytes, again), 1;
  return 0;
}
