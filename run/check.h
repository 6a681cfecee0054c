/* A file that was checked: pointers into it, and how many of each. */
#ifndef CAUSEWAY_RUN_CHECK_H
#define CAUSEWAY_RUN_CHECK_H

#include <stddef.h>

#include "causeway/abi.h"
#include "format.h"

typedef struct {
  const char* strings;
  const file_target* target;
  const file_piece* pieces;
  const file_text* texts;
  const file_function* functions;
  const file_buffer* buffers;
  const unsigned char* values;
  const file_argument* arguments;
  const file_step* steps;
  const file_port* ports;
  const unsigned char *constants, *vectors;
  uint64_t constants_at; /* in the file */
  uint32_t constants_crc;
  const file_size* size; /* NULL: all sizes are fixed */
  const file_profile* profiles;
  const file_patch* patches;
  const int64_t* tables;
  const file_check* checks;
  const file_cost* costs; /* n_costs of them: n_steps, or 0 */
  const file_weight* weights;
  const file_elsewhere* elsewhere; /* NULL: the weights are in the file, at `constants` */
  const file_binary* binaries;
  const unsigned char* made;
  uint64_t n_strings, n_pieces, n_texts, n_functions, n_buffers, n_values, n_arguments, n_steps, n_ports, n_constants,
      n_vectors, n_profiles, n_patches, n_tables, n_checks, n_costs, n_weights, n_binaries, n_made;
} checked_file;

/* CW_OK, or CW_INVALID with what is wrong, and where, in `words`. `file` is aligned to 64 bytes. */
cw_status check_file(const void* file, uint64_t bytes, checked_file* out, char* words, size_t room);

/* The same in parts, so that weights need not lie in memory twice. `front` is the file's first FILE_FRONT bytes, or all of a
 * shorter one: where the weights lie, of no bytes where the front is damaged, as check_file will say. */
#define FILE_FRONT (sizeof(file_header) + (SECTIONS_END - 1) * sizeof(file_section))
void find_constants(const void* front, uint64_t bytes, uint64_t* at, uint64_t* count);
/* All but the sum of the weights, whose bytes are not read. */
cw_status check_but_constants(const void* file, uint64_t bytes, checked_file* out, char* words, size_t room);
/* Whether the weights have the sum that they should have. */
cw_status check_constants(const checked_file* f, uint32_t sum, char* words, size_t room);

/* The weights that a buffer of them is part of; NULL: there are none, or it has no bytes. */
const file_weight* weight_of(const checked_file* f, const file_buffer* buffer);

/* The same of a weights file: of its header, where `bytes` is the size of the file, and then of its index. */
cw_status check_weights_header(const void* file, uint64_t bytes, weights_header* out, char* words, size_t room);
cw_status check_weights_index(const weights_header* header, const void* index, char* words, size_t room);
/* Its entry of a digest, or NULL. */
const file_weight* find_weight(const file_weight* index, uint64_t entries, const uint8_t digest[DIGEST]);

/* The same of a model for several chips: of its header and table, whose first TARGETS_FRONT bytes are there, or all of a
 * shorter file. `images` has room for MOST_TARGETS. What is in the images is not looked at. */
#define TARGETS_FRONT (sizeof(targets_header) + MOST_TARGETS * sizeof(file_image))
int is_of_targets(const void* front, uint64_t bytes);
cw_status check_targets(const void* front, uint64_t bytes, targets_header* out, file_image* images, char* words,
                        size_t room);

/* Of a file that was checked: the number that a patch gives for `size`, of a profile that begins with size `first`. */
int64_t patched(const checked_file* f, const file_patch* patch, uint64_t first, uint64_t size);
/* The patch of a port's dimension, or NULL where that is fixed. */
const file_patch* dimension_patch(const checked_file* f, uint64_t port, uint32_t dim);
/* A port's dimension and bytes where the size is `size`. */
int64_t dimension_at(const checked_file* f, uint64_t port, uint32_t dim, uint64_t size);
uint64_t bytes_at(const checked_file* f, uint64_t port, uint64_t size);
/* What each step computes and moves where the size is `size`, to n_costs places. */
void costs_at(const checked_file* f, uint64_t size, file_cost* out);
uint64_t bytes_of(int64_t dtype); /* of an element; 0: there is no such dtype */

uint32_t sections_of(uint32_t version); /* 0: there is no such version */
/* `before`: the sum of what comes before, 0 at first. */
uint32_t crc32_of(uint32_t before, const void* data, uint64_t bytes);

#endif
