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
  uint64_t n_strings, n_pieces, n_texts, n_functions, n_buffers, n_values, n_arguments, n_steps, n_ports, n_constants,
      n_vectors;
} checked_file;

/* CW_OK, or CW_INVALID with what is wrong, and where, in `words`. `file` is aligned to 64 bytes. */
cw_status check_file(const void* file, uint64_t bytes, checked_file* out, char* words, size_t room);

uint32_t crc32_of(const void* data, uint64_t bytes);

#endif
