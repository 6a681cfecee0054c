/* Nothing of a file is used before it was checked here: sizes first, then the sum of each section, then every index and
 * every place. All arithmetic is on 64 bits and asks before it adds. */
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char* words;
  size_t room;
} report;

static cw_status wrong(const report* r, const char* format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(r->words, r->room, format, list);
  va_end(list);
  return CW_INVALID;
}

uint32_t crc32_of(uint32_t before, const void* data, uint64_t bytes) {
  static uint32_t table[8][256];
  static int made; /* threads that race make the same table */
  if (!__atomic_load_n(&made, __ATOMIC_ACQUIRE)) {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
      table[0][i] = c;
    }
    for (int t = 1; t < 8; ++t)
      for (uint32_t i = 0; i < 256; ++i) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
    __atomic_store_n(&made, 1, __ATOMIC_RELEASE);
  }
  const unsigned char* p = data;
  uint32_t c = ~before;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint32_t low, high;
    memcpy(&low, p, 4);
    memcpy(&high, p + 4, 4);
    low ^= c;
    c = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
        table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^ table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
  }
  while (bytes--) c = c >> 8 ^ table[0][(c ^ *p++) & 0xff];
  return ~c;
}

/* `count` things from `first` on are among `all`. */
static int within(uint64_t first, uint64_t count, uint64_t all) { return first <= all && count <= all - first; }

static const char* const names[SECTIONS_END] = {"",          "strings", "target",    "pieces",   "texts",  "functions",
                                                "buffers",   "values",  "arguments", "steps",    "ports",  "vectors",
                                                "constants", "sizes",   "profiles",  "patches",  "tables", "checks",
                                                "costs",     "weights", "elsewhere", "binaries", "made"};
static const uint32_t sizes[SECTIONS_END] = {0,
                                             1,
                                             sizeof(file_target),
                                             sizeof(file_piece),
                                             sizeof(file_text),
                                             sizeof(file_function),
                                             sizeof(file_buffer),
                                             1,
                                             sizeof(file_argument),
                                             sizeof(file_step),
                                             sizeof(file_port),
                                             1,
                                             1,
                                             sizeof(file_size),
                                             sizeof(file_profile),
                                             sizeof(file_patch),
                                             sizeof(int64_t),
                                             sizeof(file_check),
                                             sizeof(file_cost),
                                             sizeof(file_weight),
                                             sizeof(file_elsewhere),
                                             sizeof(file_binary),
                                             1};
uint32_t sections_of(uint32_t version) {
  static const uint32_t counts[FILE_VERSION + 1] = {0, CONSTANTS, CHECKS, COSTS, ELSEWHERE, MADE};
  return version <= FILE_VERSION ? counts[version] : 0;
}

#define MOST 0x1000000u /* of anything but bytes */
#define MOST_BUFFERS 65536u

static cw_status damaged(const report* r, uint64_t offset, uint32_t kind) {
  return wrong(r, "byte %llu: section %s is damaged", (unsigned long long)offset, names[kind]);
}

/* The header and the table of sections, whose first FILE_FRONT bytes are there. */
static cw_status check_front(const unsigned char* file, uint64_t bytes, const report* r, file_header* out) {
  file_header header;
  if (bytes < sizeof header)
    return wrong(r, "it has %llu bytes, and a file begins with %zu", (unsigned long long)bytes, sizeof header);
  memcpy(&header, file, sizeof header);
  if (memcmp(header.magic, FILE_MAGIC, 8) != 0)
    return wrong(r, "it does not begin with \"%s\": it is no model file", FILE_MAGIC);
  const uint32_t told = header.header_crc;
  header.header_crc = 0;
  const uint32_t sections = sections_of(header.version);
  if (!sections)
    return wrong(r, "its format is version %u, and this runtime reads versions 1 to %u; update the runtime",
                 header.version, FILE_VERSION);
  if (crc32_of(0, &header, sizeof header) != told) return wrong(r, "byte 0: its header is damaged");
  if (header.bytes != bytes)
    return wrong(r, "it has %llu bytes and should have %llu: it was cut or appended to", (unsigned long long)bytes,
                 (unsigned long long)header.bytes);
  if (header.sections != sections) return wrong(r, "it has %u sections and should have %u", header.sections, sections);
  const uint64_t table = (uint64_t)header.sections * sizeof(file_section);
  if (!within(sizeof header, table, bytes)) return wrong(r, "byte 64: its table of sections goes over its end");
  if (crc32_of(0, file + sizeof header, table) != header.table_crc)
    return wrong(r, "byte 64: its table of sections is damaged");
  *out = header;
  return CW_OK;
}

static file_section section_of(const unsigned char* file, uint32_t kind) {
  file_section s;
  memcpy(&s, file + sizeof(file_header) + (kind - 1) * sizeof s, sizeof s);
  return s;
}

void find_constants(const void* front, uint64_t bytes, uint64_t* at, uint64_t* count) {
  char words[512];
  const report r = {words, sizeof words};
  file_header header;
  *at = bytes, *count = 0;
  if (check_front(front, bytes, &r, &header)) return;
  const file_section s = section_of(front, CONSTANTS);
  if (s.kind == CONSTANTS && s.offset >= FILE_FRONT && within(s.offset, s.bytes, bytes))
    *at = s.offset, *count = s.bytes;
}

static cw_status check_sections(const unsigned char* file, uint64_t bytes, const unsigned char* at[], uint64_t count[],
                                const report* r) {
  file_header header;
  const cw_status status = check_front(file, bytes, r, &header);
  if (status) return status;
  uint64_t end = sizeof header + (uint64_t)header.sections * sizeof(file_section);
  for (uint32_t i = 0; i < header.sections; ++i) {
    const uint32_t kind = i + 1;
    const file_section s = section_of(file, kind);
    if (s.kind != kind) return wrong(r, "section %u is of kind %u", i, s.kind);
    if (s.offset % 64 || s.offset < end || !within(s.offset, s.bytes, bytes))
      return wrong(r, "section %s lies at byte %llu with %llu bytes: over the file's end or another section",
                   names[kind], (unsigned long long)s.offset, (unsigned long long)s.bytes);
    if (s.bytes % sizes[kind] || (sizes[kind] > 1 && s.bytes / sizes[kind] > MOST))
      return wrong(r, "section %s has %llu bytes, which are not whole records of %u", names[kind],
                   (unsigned long long)s.bytes, sizes[kind]);
    if (kind != CONSTANTS && crc32_of(0, file + s.offset, s.bytes) != s.crc) return damaged(r, s.offset, kind);
    at[kind] = file + s.offset;
    count[kind] = s.bytes / sizes[kind];
    end = s.offset + s.bytes;
  }
  return CW_OK;
}

static int is_string(const checked_file* f, uint32_t string) { return string < f->n_strings; }

static cw_status check_binaries(const checked_file* f, const report* r) {
  for (uint64_t i = 0; i < f->n_binaries; ++i) {
    const file_binary* b = &f->binaries[i];
    if (b->text >= f->n_texts || !is_string(f, b->key) || !b->bytes || b->bytes > MOST_BINARY || b->place % 16 ||
        !within(b->place, b->bytes, f->n_made))
      return wrong(r, "binary %llu is of no source, for no chip, or not there", (unsigned long long)i);
  }
  return CW_OK;
}

int is_of_targets(const void* front, uint64_t bytes) {
  return bytes >= sizeof(targets_header) && !memcmp(front, TARGETS_MAGIC, 8);
}

cw_status check_targets(const void* front, uint64_t bytes, targets_header* out, file_image* images, char* words,
                        size_t room) {
  const report r = {words, room};
  targets_header h;
  memset(images, 0, MOST_TARGETS * sizeof *images);
  if (!is_of_targets(front, bytes)) return wrong(&r, "it is no model for several chips");
  memcpy(&h, front, sizeof h);
  if (h.version != TARGETS_VERSION)
    return wrong(&r,
                 "its format is version %u of several targets, and this runtime reads version %u; update the runtime",
                 h.version, TARGETS_VERSION);
  const uint32_t told = h.header_crc;
  h.header_crc = 0;
  if (crc32_of(0, &h, sizeof h) != told) return wrong(&r, "byte 0: its header is damaged");
  if (h.bytes != bytes)
    return wrong(&r, "it has %llu bytes and should have %llu: it was cut or appended to", (unsigned long long)bytes,
                 (unsigned long long)h.bytes);
  if (!h.count || h.count > MOST_TARGETS || !within(sizeof h, h.count * sizeof *images, bytes))
    return wrong(&r, "it has %u targets, and may have 1 to %u", h.count, MOST_TARGETS);
  memcpy(images, (const char*)front + sizeof h, h.count * sizeof *images);
  if (crc32_of(0, images, h.count * sizeof *images) != h.table_crc)
    return wrong(&r, "byte 64: its table of targets is damaged");
  uint64_t end = sizeof h + h.count * sizeof *images;
  for (uint32_t i = 0; i <= h.count; ++i) { /* the weights come last */
    const file_image part = i < h.count ? images[i] : (file_image){h.weights, h.weights_bytes};
    if (i == h.count && !part.bytes) break;
    if (part.place % 64 || part.place < end || !part.bytes || !within(part.place, part.bytes, bytes))
      return wrong(&r,
                   i < h.count ? "target %u lies over the file's end or another one"
                               : "the weights of its %u targets lie over the file's end or a target",
                   i);
    end = part.place + part.bytes;
  }
  *out = h;
  return CW_OK;
}

static cw_status check_texts(const checked_file* f, const report* r) {
  for (uint64_t i = 0; i < f->n_pieces; ++i)
    if (!within(f->pieces[i].string, f->pieces[i].bytes, f->n_strings))
      return wrong(r, "piece %llu of a source is outside of the strings", (unsigned long long)i);
  for (uint64_t i = 0; i < f->n_texts; ++i) {
    if (!within(f->texts[i].piece, f->texts[i].pieces, f->n_pieces))
      return wrong(r, "source %llu has pieces that are not there", (unsigned long long)i);
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < f->texts[i].pieces; ++p) bytes += f->pieces[f->texts[i].piece + p].bytes;
    if (bytes > MOST) return wrong(r, "source %llu has %llu bytes", (unsigned long long)i, (unsigned long long)bytes);
  }
  for (uint64_t i = 0; i < f->n_functions; ++i)
    if (f->functions[i].text >= f->n_texts || !is_string(f, f->functions[i].name))
      return wrong(r, "kernel %llu has no source or no name", (unsigned long long)i);
  return CW_OK;
}

/* ---- weights ------------------------------------------------------------------------------------------------------------ */

const file_weight* weight_of(const checked_file* f, const file_buffer* b) {
  uint64_t low = 0, high = f->n_weights; /* the last that begins at the buffer or before it */
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (f->weights[middle].place <= b->place)
      low = middle + 1;
    else
      high = middle;
  }
  const file_weight* w = low ? &f->weights[low - 1] : NULL;
  return w && b->bytes && within(b->place - w->place, b->bytes, w->bytes) ? w : NULL;
}

/* A path that stays in its folder: no root, nothing empty, no "." and no ".." between slashes, and nothing that a terminal
 * or another system would read as something else. */
static int stays_inside(const char* path) {
  for (const char* part = path;; ++part) {
    const size_t n = strcspn(part, "/");
    if (!n || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.')) return 0;
    for (size_t i = 0; i < n; ++i)
      if ((unsigned char)part[i] < ' ' || part[i] == '\\' || part[i] == ':' || part[i] == 127) return 0;
    part += n;
    if (!*part) return (size_t)(part - path) < 1024;
  }
}

/* Before the buffers, which are in them. */
static cw_status check_weights(checked_file* f, uint64_t n_elsewhere, const report* r) {
  if (n_elsewhere > 1 || (n_elsewhere && f->n_constants))
    return wrong(r, "it has its weights, and says that they are in another file, or in several");
  if (n_elsewhere) {
    if (!is_string(f, f->elsewhere->name) || !stays_inside(f->strings + f->elsewhere->name))
      return wrong(r, "the name of its weights file leads out of the model's folder");
    if (f->elsewhere->bytes > MOST_WEIGHTS)
      return wrong(r, "it has %llu bytes of weights", (unsigned long long)f->elsewhere->bytes);
    f->n_constants = f->elsewhere->bytes;
  } else {
    f->elsewhere = NULL;
  }
  uint64_t end = 0;
  for (uint64_t i = 0; i < f->n_weights; ++i) {
    const file_weight* w = &f->weights[i];
    if (!w->bytes || w->place % 64 || w->place < end || !within(w->place, w->bytes, f->n_constants))
      return wrong(r, "weights %llu, %llu bytes at %llu, lie over others, or outside of them", (unsigned long long)i,
                   (unsigned long long)w->bytes, (unsigned long long)w->place);
    end = w->place + w->bytes;
  }
  return CW_OK;
}

cw_status check_weights_header(const void* file, uint64_t bytes, weights_header* out, char* words, size_t room) {
  const report r = {words, room};
  weights_header h;
  if (bytes < sizeof h)
    return wrong(&r, "it has %llu bytes, and a weights file begins with %zu", (unsigned long long)bytes, sizeof h);
  memcpy(&h, file, sizeof h);
  if (memcmp(h.magic, WEIGHTS_MAGIC, 8) != 0)
    return wrong(&r, "it does not begin with \"%s\": it is no weights file", WEIGHTS_MAGIC);
  if (h.version != WEIGHTS_VERSION)
    return wrong(&r, "its format is version %u, and this runtime reads version %u; update the runtime", h.version,
                 WEIGHTS_VERSION);
  const uint32_t told = h.header_crc;
  h.header_crc = 0;
  if (crc32_of(0, &h, sizeof h) != told) return wrong(&r, "byte 0: its header is damaged");
  if (h.bytes > bytes)
    return wrong(&r, "it has %llu bytes and should have %llu: it was cut", (unsigned long long)bytes,
                 (unsigned long long)h.bytes);
  if (h.entries > MOST || h.index < sizeof h || h.index % 64 ||
      !within(h.index, h.entries * sizeof(file_weight), h.bytes))
    return wrong(&r, "its index of %llu entries at byte %llu goes over its end", (unsigned long long)h.entries,
                 (unsigned long long)h.index);
  *out = h;
  return CW_OK;
}

cw_status check_weights_index(const weights_header* h, const void* index, char* words, size_t room) {
  const report r = {words, room};
  const file_weight* e = index;
  if (crc32_of(0, index, h->entries * sizeof *e) != h->index_crc)
    return wrong(&r, "byte %llu: its index is damaged", (unsigned long long)h->index);
  for (uint64_t i = 0; i < h->entries; ++i)
    if (!e[i].bytes || e[i].place < sizeof *h || e[i].place % 64 || !within(e[i].place, e[i].bytes, h->bytes) ||
        (i && memcmp(e[i - 1].digest, e[i].digest, DIGEST) >= 0))
      return wrong(&r, "entry %llu of its index is not in order, or lies over the file's end", (unsigned long long)i);
  return CW_OK;
}

const file_weight* find_weight(const file_weight* index, uint64_t entries, const uint8_t digest[DIGEST]) {
  uint64_t low = 0, high = entries;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const int order = memcmp(index[middle].digest, digest, DIGEST);
    if (order == 0) return &index[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

static cw_status check_buffers(const checked_file* f, const report* r) {
  if (f->n_buffers > MOST_BUFFERS)
    return wrong(r, "it has %llu buffers, and at most %u are read", (unsigned long long)f->n_buffers, MOST_BUFFERS);
  for (uint64_t i = 0; i < f->n_buffers; ++i) {
    const file_buffer* b = &f->buffers[i];
    const uint64_t room = b->kind == IN_ARENA ? f->target->arena : b->kind == CONSTANT ? f->n_constants : 16;
    if (b->kind > TOLD || !within(b->place, b->bytes, room) || b->place % 16)
      return wrong(r, "buffer %llu of kind %u, %llu bytes at %llu, is outside of its memory", (unsigned long long)i,
                   b->kind, (unsigned long long)b->bytes, (unsigned long long)b->place);
    if (b->kind == CONSTANT && b->bytes && (f->n_weights || f->elsewhere) && !weight_of(f, b))
      return wrong(r, "buffer %llu is in no weights that have a SHA-256", (unsigned long long)i);
  }
  return CW_OK;
}

static cw_status check_steps(const checked_file* f, const report* r) {
  for (uint64_t i = 0; i < f->n_arguments; ++i) {
    const file_argument* a = &f->arguments[i];
    if (a->kind == ADDRESS ? a->of >= f->n_buffers || a->place > f->buffers[a->of].bytes
                           : a->kind != VALUE || !a->of || !within(a->place, a->of, f->n_values))
      return wrong(r, "argument %llu is no place in a buffer, and no value", (unsigned long long)i);
  }
  for (uint64_t i = 0; i < f->n_steps; ++i) {
    const file_step* s = &f->steps[i];
    if (s->kind > FILL || !is_string(f, s->name) || !is_string(f, s->line) ||
        !within(s->argument, s->arguments, f->n_arguments))
      return wrong(r, "step %llu is of no kind, or its name, line or arguments are not there", (unsigned long long)i);
    if (s->kind == LAUNCH) {
      int good = s->function < f->n_functions && s->arguments <= 1024;
      for (int d = 0; d < 3; ++d) good &= s->grid[d] > 0 && s->group[d] > 0 && s->group[d] <= 65535;
      if (!good) return wrong(r, "step %llu launches no kernel of the file, or nothing of it", (unsigned long long)i);
      continue;
    }
    if (s->arguments != (s->kind == COPY ? 2u : 1u))
      return wrong(r, "step %llu has %u addresses", (unsigned long long)i, s->arguments);
    for (uint32_t k = 0; k < s->arguments; ++k) {
      const file_argument* a = &f->arguments[s->argument + k];
      if (a->kind != ADDRESS || !within(a->place, s->bytes, f->buffers[a->of].bytes) ||
          (k == 0 && f->buffers[a->of].kind == CONSTANT))
        return wrong(r, "step %llu reads or writes %llu bytes outside of a buffer, or writes to weights",
                     (unsigned long long)i, (unsigned long long)s->bytes);
    }
  }
  return CW_OK;
}

uint64_t bytes_of(int64_t dtype) {
  static const unsigned char size[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 8, 16, 1, 1, 1, 1, 1};
  return dtype >= 0 && dtype < (int64_t)sizeof size ? size[dtype] : 0;
}

static cw_status check_ports(const checked_file* f, const report* r) {
  for (uint64_t i = 0; i < f->n_ports; ++i) {
    const file_port* p = &f->ports[i];
    uint64_t bytes = bytes_of(p->dtype);
    int good = bytes && is_string(f, p->name) && p->kind <= OUTPUT && p->ndim <= 8 && p->buffer < f->n_buffers;
    for (uint32_t d = 0; good && d < p->ndim; ++d) {
      good = p->shape[d] >= 0 && (!p->shape[d] || bytes <= ((uint64_t)1 << 48) / (uint64_t)p->shape[d]);
      if (good) bytes *= (uint64_t)p->shape[d];
    }
    if (!good || bytes != p->bytes || !within(p->place, bytes, f->buffers[p->buffer].bytes) ||
        (p->kind == INPUT && f->buffers[p->buffer].kind != IN_ARENA))
      return wrong(r, "port %llu has no name, dtype, shape or place", (unsigned long long)i);
  }
  return CW_OK;
}

/* ---- sizes that may differ ------------------------------------------------------------------------------------------- */

/* 0: it cannot be computed. Dividends are never negative, so that rounding down is what C does. */
static int expression(const file_patch* p, uint64_t size, int64_t* out) {
  int64_t n;
  if (size > INT64_MAX || __builtin_mul_overflow(p->slope, (int64_t)size, &n) || __builtin_add_overflow(n, p->base, &n))
    return 0;
  if (p->divisor == 0 || p->divisor > INT32_MAX || (p->divisor > 1 && n < 0)) return 0;
  *out = n / (int64_t)p->divisor;
  return 1;
}

int64_t patched(const checked_file* f, const file_patch* p, uint64_t first, uint64_t size) {
  int64_t n = 0;
  if (!p->divisor) return f->tables[p->table + (size - first)];
  return expression(p, size, &n) ? n : 0;
}

const file_patch* dimension_patch(const checked_file* f, uint64_t port, uint32_t dim) {
  for (uint32_t i = 0; f->size && i < f->size->patches; ++i) {
    const file_patch* p = &f->patches[f->size->patch + i];
    if (p->of == port && p->place == dim) return p;
  }
  return NULL;
}

int64_t dimension_at(const checked_file* f, uint64_t port, uint32_t dim, uint64_t size) {
  const file_patch* p = dimension_patch(f, port, dim);
  return p ? patched(f, p, f->size->least, size) : f->ports[port].shape[dim];
}

uint64_t bytes_at(const checked_file* f, uint64_t port, uint64_t size) {
  uint64_t bytes = bytes_of(f->ports[port].dtype);
  for (uint32_t d = 0; d < f->ports[port].ndim; ++d) bytes *= (uint64_t)dimension_at(f, port, d, size);
  return bytes;
}

/* The least and the most that a patch gives for sizes `first` to `last`: an expression has them at its ends. */
static int range_of(const checked_file* f, const file_patch* p, uint64_t first, uint64_t last, int64_t* least,
                    int64_t* most) {
  if (p->divisor) {
    int64_t a, b;
    if (!expression(p, first, &a) || !expression(p, last, &b)) return 0;
    *least = a < b ? a : b, *most = a < b ? b : a;
    return 1;
  }
  if (!within(p->table, last - first + 1, f->n_tables)) return 0;
  *least = *most = f->tables[p->table];
  for (uint64_t i = 1; i <= last - first; ++i) {
    const int64_t n = f->tables[p->table + i];
    if (n < *least) *least = n;
    if (n > *most) *most = n;
  }
  return 1;
}

/* Of copies and fills, the most bytes, and of addresses, the furthest places: both at once must be inside. */
typedef struct {
  uint64_t *bytes, *places;
} furthest;

static int check_patch(const checked_file* f, const file_patch* p, uint64_t first, uint64_t last, furthest* most) {
  int64_t low, high;
  if (!range_of(f, p, first, last, &low, &high)) return 0;
  const file_argument* a = p->of < f->n_arguments ? &f->arguments[p->of] : NULL;
  switch (p->what) {
    case GRID:
      return p->of < f->n_steps && f->steps[p->of].kind == LAUNCH && p->place < 3 && low > 0 && high <= UINT32_MAX;
    case BYTES:
      if (p->of >= f->n_steps || f->steps[p->of].kind == LAUNCH || low < 0) return 0;
      if ((uint64_t)high > most->bytes[p->of]) most->bytes[p->of] = (uint64_t)high;
      return 1;
    case PLACE:
      if (!a || a->kind != ADDRESS || low < 0 || (uint64_t)high > f->buffers[a->of].bytes) return 0;
      if ((uint64_t)high > most->places[p->of]) most->places[p->of] = (uint64_t)high;
      return 1;
    case WORD:
      return a && a->kind == VALUE && within(p->place, 8, a->of);
    case HALF_WORD:
      return a && a->kind == VALUE && within(p->place, 4, a->of) && low >= INT32_MIN && high <= (int64_t)UINT32_MAX;
    case OPERATIONS:
    case MOVED:
      return p->of < f->n_costs && low >= 0 && (uint64_t)high <= MOST_COST;
    default:
      return 0;
  }
}

/* A dimension of a port. The size is told from an input's bytes, so an input has one such, which has each size apart. */
static int check_dimension(const checked_file* f, const file_patch* p) {
  int64_t low, high;
  if (p->what != DIMENSION || !p->divisor || p->of >= f->n_ports || p->place >= f->ports[p->of].ndim ||
      !range_of(f, p, f->size->least, f->size->most, &low, &high) || low < 0 || high > f->ports[p->of].shape[p->place])
    return 0;
  if (f->ports[p->of].kind != INPUT) return 1;
  for (uint32_t d = 0; d < f->ports[p->of].ndim; ++d)
    if (f->ports[p->of].shape[d] == 0 || (d != p->place && dimension_patch(f, p->of, d))) return 0;
  return p->divisor == 1 && p->slope > 0 && dimension_patch(f, p->of, (uint32_t)p->place) == p;
}

static cw_status check_profiles(const checked_file* f, furthest* most, const report* r) {
  const file_size* size = f->size;
  if (!is_string(f, size->name) || !size->least || size->least > size->example || size->example > size->most ||
      size->most > INT32_MAX || size->most - size->least > 65535 || !within(size->patch, size->patches, f->n_patches) ||
      size->patches > f->n_ports * 8 || (uint64_t)size->patches * f->n_ports > 1u << 24)
    return wrong(r, "the size that may differ has no name or no range");
  for (uint32_t i = 0; i < size->patches; ++i)
    if (!check_dimension(f, &f->patches[size->patch + i]))
      return wrong(r, "expression %u is of no dimension of an input or output, or not within it", size->patch + i);
  /* No two profiles have a patch in common, nor two patches a table: what is checked is no more than the file has. */
  uint64_t next = size->least, own = (uint64_t)size->patch + size->patches, entries = 0;
  for (uint64_t i = 0; i < f->n_profiles; ++i) {
    const file_profile* p = &f->profiles[i];
    if (p->patch < own || p->first != next || p->last < p->first || p->last > size->most ||
        !within(p->step, p->steps, f->n_steps) || !within(p->patch, p->patches, f->n_patches))
      return wrong(r, "profile %llu does not begin where the one before ends, or has steps that are not there",
                   (unsigned long long)i);
    next = p->last + 1;
    own = (uint64_t)p->patch + p->patches;
    for (uint32_t k = 0; k < p->patches; ++k)
      if ((!f->patches[p->patch + k].divisor && (entries += p->last - p->first + 1) > f->n_tables) ||
          !check_patch(f, &f->patches[p->patch + k], p->first, p->last, most))
        return wrong(r, "expression %u leads out of what it is of, for a size from %llu to %llu", p->patch + k,
                     (unsigned long long)p->first, (unsigned long long)p->last);
  }
  if (next != size->most + 1) return wrong(r, "its profiles do not have all sizes");
  for (uint64_t i = 0; i < f->n_steps; ++i)
    for (uint32_t k = 0; f->steps[i].kind != LAUNCH && k < f->steps[i].arguments; ++k) {
      const uint64_t at = (uint64_t)f->steps[i].argument + k;
      if (!within(most->places[at], most->bytes[i], f->buffers[f->arguments[at].of].bytes))
        return wrong(r, "step %llu reads or writes outside of a buffer at some size", (unsigned long long)i);
    }
  return CW_OK;
}

static cw_status check_sizes(const checked_file* f, uint64_t n_sizes, const report* r) {
  if (n_sizes > 1 || (!n_sizes && (f->n_profiles || f->n_patches || f->n_tables)))
    return wrong(r, "it has %llu sizes that may differ, and what depends on one", (unsigned long long)n_sizes);
  if (!n_sizes) return CW_OK;
  furthest most = {calloc(f->n_steps + 1, sizeof(uint64_t)), calloc(f->n_arguments + 1, sizeof(uint64_t))};
  cw_status status = CW_INVALID;
  if (!most.bytes || !most.places) {
    wrong(r, "the host is out of memory");
  } else {
    for (uint64_t i = 0; i < f->n_steps; ++i) most.bytes[i] = f->steps[i].bytes;
    for (uint64_t i = 0; i < f->n_arguments; ++i) most.places[i] = f->arguments[i].place;
    status = check_profiles(f, &most, r);
  }
  free(most.bytes), free(most.places);
  return status;
}

static cw_status check_costs(const checked_file* f, const report* r) {
  if (f->n_costs && f->n_costs != f->n_steps)
    return wrong(r, "it has %llu steps, and says what %llu compute", (unsigned long long)f->n_steps,
                 (unsigned long long)f->n_costs);
  for (uint64_t i = 0; i < f->n_costs; ++i)
    if (f->costs[i].operations > MOST_COST || f->costs[i].bytes > MOST_COST)
      return wrong(r, "step %llu computes or moves more than any can", (unsigned long long)i);
  return CW_OK;
}

void costs_at(const checked_file* f, uint64_t size, file_cost* out) {
  if (f->n_costs) memcpy(out, f->costs, f->n_costs * sizeof *out);
  for (uint64_t i = 0; i < f->n_profiles; ++i) {
    const file_profile* p = &f->profiles[i];
    for (uint32_t k = 0; size >= p->first && size <= p->last && k < p->patches; ++k) {
      const file_patch* patch = &f->patches[p->patch + k];
      if (patch->what != OPERATIONS && patch->what != MOVED) continue;
      const uint64_t n = (uint64_t)patched(f, patch, p->first, size);
      *(patch->what == OPERATIONS ? &out[patch->of].operations : &out[patch->of].bytes) = n;
    }
  }
}

static cw_status check_vectors(const checked_file* f, const report* r) {
  for (uint64_t i = 0; i < f->n_ports; ++i) {
    const uint64_t bytes = f->size ? bytes_at(f, i, f->size->example) : f->ports[i].bytes;
    if (f->ports[i].vector != NO_VECTOR && !within(f->ports[i].vector, bytes, f->n_vectors))
      return wrong(r, "port %llu has a test vector that is not there", (unsigned long long)i);
  }
  for (uint64_t i = 0; i < f->n_checks; ++i) {
    const file_check* c = &f->checks[i];
    const file_argument* a = c->argument < f->n_arguments ? &f->arguments[c->argument] : NULL;
    const uint64_t each = bytes_of(c->dtype);
    uint64_t last;
    if (c->step >= f->n_steps || !a || a->kind != ADDRESS || !each || !c->count || !c->stride || c->vector % 8 ||
        !within(c->vector, c->count * each, f->n_vectors) ||
        __builtin_mul_overflow((uint64_t)c->count - 1, c->stride, &last) || last >= f->buffers[a->of].bytes / each ||
        (!f->size && !within(a->place, (last + 1) * each, f->buffers[a->of].bytes)) || /* else session_read looks */
        f->buffers[a->of].kind == TOLD)
      return wrong(r, "check %llu is of no step, or of what is not there", (unsigned long long)i);
  }
  return CW_OK;
}

/* Of buffers in the arena, that no two are in use at once in the same place. */
typedef struct {
  uint64_t place, end, first, last;
} use;

static int by_place(const void* a, const void* b) {
  const use *x = a, *y = b;
  return x->place < y->place ? -1 : x->place > y->place;
}

static cw_status check_plan(const checked_file* f, const report* r) {
  use* all = calloc(f->n_buffers ? f->n_buffers : 1, sizeof *all);
  if (!all) return wrong(r, "the host is out of memory");
  for (uint64_t i = 0; i < f->n_buffers; ++i) all[i].first = UINT64_MAX;
  for (uint64_t s = 0; s < f->n_steps; ++s)
    for (uint32_t k = 0; k < f->steps[s].arguments; ++k) {
      const file_argument* a = &f->arguments[f->steps[s].argument + k];
      if (a->kind != ADDRESS) continue;
      if (all[a->of].first > s) all[a->of].first = s;
      all[a->of].last = s;
    }
  for (uint64_t i = 0; i < f->n_ports; ++i) {
    use* u = &all[f->ports[i].buffer];
    if (f->ports[i].kind == INPUT)
      u->first = 0;
    else
      u->last = f->n_steps;
    if (u->first == UINT64_MAX) u->first = f->n_steps;
  }
  uint64_t n = 0;
  for (uint64_t i = 0; i < f->n_buffers; ++i) {
    if (f->buffers[i].kind != IN_ARENA || !f->buffers[i].bytes || all[i].first == UINT64_MAX) continue;
    all[n] = (use){f->buffers[i].place, f->buffers[i].place + f->buffers[i].bytes, all[i].first, all[i].last};
    ++n;
  }
  qsort(all, n, sizeof *all, by_place);
  cw_status status = CW_OK;
  for (uint64_t i = 0; i < n && !status; ++i)
    for (uint64_t j = i + 1; j < n && all[j].place < all[i].end && !status; ++j)
      if (all[i].first <= all[j].last && all[j].first <= all[i].last)
        status = wrong(r, "two buffers at byte %llu of the arena are in use at once", (unsigned long long)all[j].place);
  free(all);
  return status;
}

cw_status check_constants(const checked_file* f, uint32_t sum, char* words, size_t room) {
  const report r = {words, room};
  return sum == f->constants_crc ? CW_OK : damaged(&r, f->constants_at, CONSTANTS);
}

cw_status check_file(const void* file, uint64_t bytes, checked_file* f, char* words, size_t room) {
  const cw_status status = check_but_constants(file, bytes, f, words, room);
  if (status) return status;
  return check_constants(f, crc32_of(0, f->constants, f->elsewhere ? 0 : f->n_constants), words, room);
}

cw_status check_but_constants(const void* file, uint64_t bytes, checked_file* f, char* words, size_t room) {
  const report r = {words, room};
  const unsigned char* at[SECTIONS_END] = {0};
  uint64_t n[SECTIONS_END] = {0};
  cw_status status = check_sections(file, bytes, at, n, &r);
  if (status) return status;
  *f = (checked_file){(const char*)at[STRINGS],
                      (const void*)at[TARGET],
                      (const void*)at[PIECES],
                      (const void*)at[TEXTS],
                      (const void*)at[FUNCTIONS],
                      (const void*)at[BUFFERS],
                      at[VALUES],
                      (const void*)at[ARGUMENTS],
                      (const void*)at[STEPS],
                      (const void*)at[PORTS],
                      at[CONSTANTS],
                      at[VECTORS],
                      (uint64_t)(at[CONSTANTS] - (const unsigned char*)file),
                      section_of(file, CONSTANTS).crc,
                      n[SIZES] ? (const void*)at[SIZES] : NULL,
                      (const void*)at[PROFILES],
                      (const void*)at[PATCHES],
                      (const void*)at[TABLES],
                      (const void*)at[CHECKS],
                      (const void*)at[COSTS],
                      (const void*)at[WEIGHTS],
                      (const void*)at[ELSEWHERE],
                      (const void*)at[BINARIES],
                      at[MADE],
                      n[STRINGS],
                      n[PIECES],
                      n[TEXTS],
                      n[FUNCTIONS],
                      n[BUFFERS],
                      n[VALUES],
                      n[ARGUMENTS],
                      n[STEPS],
                      n[PORTS],
                      n[CONSTANTS],
                      n[VECTORS],
                      n[PROFILES],
                      n[PATCHES],
                      n[TABLES],
                      n[CHECKS],
                      n[COSTS],
                      n[WEIGHTS],
                      n[BINARIES],
                      n[MADE]};
  if (!f->n_strings || f->strings[f->n_strings - 1]) return wrong(&r, "its strings do not end");
  if (n[TARGET] != 1 || !is_string(f, f->target->vendor) || !is_string(f, f->target->about) ||
      !is_string(f, f->target->tellers))
    return wrong(&r, "it does not say for which chip it is");
  if ((status = check_texts(f, &r)) || (status = check_binaries(f, &r)) ||
      (status = check_weights(f, n[ELSEWHERE], &r)) || (status = check_buffers(f, &r)) ||
      (status = check_steps(f, &r)) || (status = check_ports(f, &r)) || (status = check_costs(f, &r)) ||
      (status = check_sizes(f, n[SIZES], &r)) || (status = check_vectors(f, &r)))
    return status;
  return check_plan(f, &r);
}
