/* The file, version 1: a header, a table of sections, and sections, each beginning at a multiple of 64 bytes, in the order
 * of their kinds. Little-endian. `string` is an offset in the strings; each ends with a NUL. src/causeway/export/file.py
 * writes it, check.c reads it. */
#ifndef CAUSEWAY_RUN_FORMAT_H
#define CAUSEWAY_RUN_FORMAT_H

#include <stdint.h>

#define FILE_MAGIC "CAUSEWAY"
#define FILE_VERSION 1u

enum {
  STRINGS = 1, /* bytes; the last is a NUL */
  TARGET, /* one */
  PIECES, /* of sources: parts of the strings */
  TEXTS, /* sources: runs of pieces */
  FUNCTIONS,
  BUFFERS,
  VALUES, /* bytes of arguments */
  ARGUMENTS,
  STEPS,
  PORTS,
  VECTORS, /* bytes of test vectors */
  CONSTANTS, /* bytes of weights */
  SECTIONS_END
};

typedef struct {
  char magic[8];
  uint32_t version, sections;
  uint64_t bytes;
  uint32_t table_crc, header_crc;
  uint8_t zero[32];
} file_header;
typedef struct {
  uint32_t kind, crc;
  uint64_t offset, bytes, zero;
} file_section;
typedef struct {
  uint32_t language, flags;
  uint64_t arithmetic, arena;
  uint32_t vendor, about, tellers, zero;
} file_target;
typedef struct {
  uint32_t string, bytes;
} file_piece;
typedef struct {
  uint32_t piece, pieces;
} file_text;
typedef struct {
  uint32_t text, name;
} file_function;
enum { IN_ARENA, CONSTANT, TOLD };
typedef struct {
  uint32_t kind, zero;
  uint64_t bytes, place;
} file_buffer;
enum { ADDRESS, VALUE };
typedef struct {
  uint32_t kind, of;
  uint64_t place;
} file_argument; /* a buffer and a place in it; bytes, and a place in VALUES */
enum { LAUNCH, COPY, FILL };
typedef struct {
  uint32_t kind, function, grid[3], group[3], argument, arguments;
  uint64_t bytes; /* of a copy and a fill */
  uint32_t byte, name, line, zero;
} file_step;
enum { INPUT, OUTPUT };
#define NO_VECTOR UINT64_MAX
typedef struct {
  uint32_t name, kind, buffer, dtype, ndim, zero;
  uint64_t place, bytes, vector; /* in its buffer; in VECTORS */
  int64_t shape[8];
} file_port;

_Static_assert(sizeof(file_header) == 64 && sizeof(file_section) == 32 && sizeof(file_target) == 40, "sizes");
_Static_assert(sizeof(file_buffer) == 24 && sizeof(file_argument) == 16 && sizeof(file_step) == 64, "sizes");
_Static_assert(sizeof(file_port) == 112, "sizes");

#endif
