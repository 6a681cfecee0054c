/* The file: a header, a table of sections, and sections, each beginning at a multiple of 64 bytes, in the order
 * of their kinds. Little-endian. `string` is an offset in the strings; each ends with a NUL. src/causeway/ship/file.py
 * writes it, check.c reads it. Version 1 ends with the weights; version 2 has five more sections, any of which may be
 * empty: a size that may differ from run to run, what depends on it, and numbers of single steps. Version 3 adds what each
 * step computes and moves. Version 4 adds the SHA-256 of weights, which may then be in a file of their own. Version 5 adds what
 * compilers made of its sources. */
#ifndef CAUSEWAY_RUN_FORMAT_H
#define CAUSEWAY_RUN_FORMAT_H

#include <stdint.h>

#define FILE_MAGIC "CAUSEWAY"
#define FILE_VERSION 5u

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
  SIZES, /* one, or none */
  PROFILES, /* of sizes, in order, without a gap */
  PATCHES, /* what depends on the size */
  TABLES, /* of patches: an int64 for each size of a profile */
  CHECKS, /* what steps wrote with the test vectors */
  COSTS, /* one for each step, or none */
  WEIGHTS, /* by place: what the weights are made of, or none */
  ELSEWHERE, /* one, or none: the file that has the weights, and CONSTANTS are empty */
  BINARIES, /* of sources, for one chip and driver each */
  MADE, /* bytes of binaries */
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

typedef struct {
  uint32_t name, zero;
  uint64_t least, most, example; /* of the test vectors */
  uint32_t patch, patches; /* of ports */
} file_size;
typedef struct {
  uint64_t first, last; /* sizes */
  uint32_t step, steps, patch, patches;
} file_profile;
enum { GRID, BYTES, PLACE, WORD, HALF_WORD, DIMENSION, OPERATIONS, MOVED };
typedef struct {
  uint32_t what, of; /* a step (GRID, BYTES, and of its cost OPERATIONS, MOVED), an argument (PLACE, and WORD of 8 and
                        HALF_WORD of 4 bytes), or a port */
  uint64_t place; /* which of the grid's or the shape's numbers, or a place in the argument's bytes */
  int64_t base, slope; /* floor((base + slope * size) / divisor) */
  uint64_t divisor, table; /* divisor 0: the number is in TABLES, at `table` for the profile's first size */
} file_patch;
typedef struct {
  uint32_t step, argument, dtype, count;
  uint64_t stride, vector; /* in elements, from the argument's address on; in VECTORS, multiples of 8 */
} file_check;
#define MOST_COST ((uint64_t)1 << 56)
typedef struct {
  uint64_t operations, bytes; /* of numbers with a point; read and written */
} file_cost;

#define DIGEST 32
typedef struct {
  uint8_t digest[DIGEST]; /* SHA-256 of the bytes */
  uint64_t place, bytes; /* in the weights, where all of a buffer is in one such; of a weights file, in that file */
} file_weight;
#define MOST_WEIGHTS ((uint64_t)1 << 48)
typedef struct {
  uint32_t name, zero; /* a path from the folder of the model's file, which does not lead out of it */
  uint64_t bytes; /* of the weights */
} file_elsewhere;

#define MOST_BINARY ((uint64_t)1 << 30)
typedef struct {
  uint32_t text,
      key; /* of which source; for which chip and driver: three lines, of the vendor, the device and the driver */
  uint64_t place, bytes; /* in MADE */
} file_binary;

/* A weights file, which several models share: a header, and anywhere after it the bytes of weights and an index of them,
 * sorted by digest. What is added goes behind `bytes`, with a new index at its end, and the header is written last: who
 * reads meanwhile has the old one. src/causeway/ship/weights.py writes it. */
#define WEIGHTS_MAGIC "CWEIGHTS"
#define WEIGHTS_VERSION 1u
typedef struct {
  char magic[8];
  uint32_t version, zero;
  uint64_t bytes, index, entries; /* the file may have more bytes, which are nothing */
  uint32_t index_crc, header_crc;
  uint8_t zeros[16];
} weights_header;

/* A model for several chips: a header, `count` images, each a whole file as above, and the weights file of them all, of no
 * bytes where they name another. All begin at multiples of 64 bytes. src/causeway/ship/targets.py writes it. */
#define TARGETS_MAGIC "CTARGETS"
#define TARGETS_VERSION 1u
#define MOST_TARGETS 16u
typedef struct {
  char magic[8];
  uint32_t version, count;
  uint64_t bytes, weights, weights_bytes;
  uint32_t table_crc, header_crc;
  uint8_t zeros[16];
} targets_header;
typedef struct {
  uint64_t place, bytes;
} file_image;

_Static_assert(sizeof(file_header) == 64 && sizeof(file_section) == 32 && sizeof(file_target) == 40, "sizes");
_Static_assert(sizeof(file_buffer) == 24 && sizeof(file_argument) == 16 && sizeof(file_step) == 64, "sizes");
_Static_assert(sizeof(file_port) == 112 && sizeof(file_size) == 40 && sizeof(file_profile) == 32, "sizes");
_Static_assert(sizeof(file_patch) == 48 && sizeof(file_check) == 32 && sizeof(file_cost) == 16, "sizes");
_Static_assert(sizeof(file_weight) == 48 && sizeof(file_elsewhere) == 16 && sizeof(weights_header) == 64, "sizes");
_Static_assert(sizeof(file_binary) == 24 && sizeof(targets_header) == 64 && sizeof(file_image) == 16, "sizes");

#endif
