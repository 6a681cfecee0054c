/* Prints sizes and offsets of every struct of the contract as JSON, for layout.json. */
#include <stddef.h>
#include <stdio.h>

#include "causeway/abi.h"

static const char* before = "";

#define STRUCT(type) printf("%s\"%s\": {\"size\": %zu", before, #type, sizeof(type)), before = "},\n "
#define FIELD(type, field) printf(", \"%s\": %zu", #field, offsetof(type, field))

// clang-format off
#define DEVICE_INFO(F)                                                                                   \
  F(struct_size) F(flags) F(name) F(memory) F(dtypes) F(alignment) F(compute_units) F(capability_major)  \
  F(capability_minor) F(uuid) F(priority_lowest) F(priority_highest) F(padding) F(reserved)
#define BACKEND(F)                                                                                        \
  F(struct_size) F(abi_version) F(name) F(version) F(last_error) F(device_count) F(device_info) F(sync)   \
  F(mem_alloc) F(mem_free) F(mem_copy) F(bind) F(mem_set) F(mem_info) F(host_alloc) F(host_free)          \
  F(op_find) F(stream_create) F(stream_destroy) F(stream_query) F(stream_sync) F(stream_wait)             \
  F(event_create) F(event_destroy) F(event_record) F(event_query) F(event_sync) F(event_elapsed)          \
  F(extension) F(close) F(peer_access) F(device_attribute) F(host_register) F(host_unregister) F(fault) \
  F(stream_callback) F(host_alloc_for) F(host_free_for) F(mem_alloc_on) F(mem_free_on) F(mem_reserve) F(mem_map)       \
  F(mem_unmap) F(mem_release) F(op_find_for)
#define CODE_INFO(F) \
  F(struct_size) F(language) F(flags) F(compute_units) F(group_limit) F(simd_width) F(local_memory) F(arithmetic) \
  F(driver) F(grid_limits) F(group_limits) F(argument_limit) F(binaries) F(loop_limit)
// clang-format on

int main(void) {
  printf("{");
  STRUCT(cw_device_info);
#define F(field) FIELD(cw_device_info, field);
  DEVICE_INFO(F)
#undef F
  STRUCT(cw_philox);
  FIELD(cw_philox, seed);
  FIELD(cw_philox, offset);
  STRUCT(cw_arg);
  FIELD(cw_arg, tag);
  FIELD(cw_arg, n);
  FIELD(cw_arg, v);
  STRUCT(cw_op);
  FIELD(cw_op, struct_size);
  FIELD(cw_op, needs);
  FIELD(cw_op, dtypes);
  FIELD(cw_op, kernel);
  STRUCT(cw_host);
  FIELD(cw_host, struct_size);
  FIELD(cw_host, abi_version);
  FIELD(cw_host, scratch);
  FIELD(cw_host, resize);
  FIELD(cw_host, setting);
  FIELD(cw_host, log);
  FIELD(cw_host, packed);
  FIELD(cw_host, storage);
  STRUCT(cw_backend);
#define F(field) FIELD(cw_backend, field);
  BACKEND(F)
#undef F
  STRUCT(cw_fault);
  FIELD(cw_fault, struct_size);
  FIELD(cw_fault, kernel);
  FIELD(cw_fault, address);
  STRUCT(cw_ipc_v1);
  FIELD(cw_ipc_v1, struct_size);
  FIELD(cw_ipc_v1, reserved);
  FIELD(cw_ipc_v1, mem_export);
  FIELD(cw_ipc_v1, mem_import);
  FIELD(cw_ipc_v1, mem_close);
  STRUCT(cw_activity);
  FIELD(cw_activity, correlation);
  FIELD(cw_activity, begin_ns);
  FIELD(cw_activity, end_ns);
  FIELD(cw_activity, name);
  STRUCT(cw_profile_v1);
  FIELD(cw_profile_v1, struct_size);
  FIELD(cw_profile_v1, reserved);
  FIELD(cw_profile_v1, clock);
  FIELD(cw_profile_v1, start);
  FIELD(cw_profile_v1, stop);
  FIELD(cw_profile_v1, correlate);
  FIELD(cw_profile_v1, read);
  STRUCT(cw_code_info);
#define F(field) FIELD(cw_code_info, field);
  CODE_INFO(F)
#undef F
  STRUCT(cw_code_arg);
  FIELD(cw_code_arg, bytes);
  FIELD(cw_code_arg, v);
  STRUCT(cw_code_v1);
  FIELD(cw_code_v1, struct_size);
  FIELD(cw_code_v1, reserved);
  FIELD(cw_code_v1, info);
  FIELD(cw_code_v1, build);
  FIELD(cw_code_v1, release);
  FIELD(cw_code_v1, function);
  FIELD(cw_code_v1, launch);
  FIELD(cw_code_v1, build_binary);
  FIELD(cw_code_v1, binary);
  STRUCT(DLTensor);
  FIELD(DLTensor, data);
  FIELD(DLTensor, device);
  FIELD(DLTensor, ndim);
  FIELD(DLTensor, dtype);
  FIELD(DLTensor, shape);
  FIELD(DLTensor, strides);
  FIELD(DLTensor, byte_offset);
  printf("}}\n");
  return 0;
}
