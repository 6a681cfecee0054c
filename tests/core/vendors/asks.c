/* Loads: its kernels take little and ask for the rest. Each checks that it was given what it asked for, and fails
 * with words where it was not. */
#include <stddef.h>

#include "base.h"

static const char* said = "";
static const char* last_error(void) { return said; }
static cw_status refuse(const char* words) {
  said = words;
  return CW_FAILED;
}

static int dense(const DLTensor* t) {
  int64_t step = 1;
  for (int32_t d = t->ndim - 1; d >= 0; --d) {
    if (t->shape[d] != 1 && t->strides[d] != step) return 0;
    step *= t->shape[d];
  }
  return 1;
}

static int64_t count(const DLTensor* t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t->ndim; ++d) n *= t->shape[d];
  return n;
}

/* aten::add.out(self, other, *, alpha, out), float32 only. */
static cw_status add(const cw_arg* args, int32_t n, cw_stream stream) {
  const DLTensor* t[3];
  (void)stream;
  if (n != 4) return refuse("add.out has four arguments");
  for (int i = 0; i < 3; ++i) {
    if (args[i].tag != CW_TENSOR) return refuse("out, self and other are tensors");
    t[i] = args[i].v.tensor;
    if (!t[i]->strides || !dense(t[i])) return refuse("it asked for contiguous tensors");
    if (t[i]->dtype.code != kDLFloat || t[i]->dtype.bits != 32) return refuse("it takes float32 only");
    if (t[i]->ndim != t[0]->ndim || count(t[i]) != count(t[0])) return refuse("it asked for broadcast tensors");
  }
  if (count(t[0]) == 0) return refuse("it asked for elements");
  const double alpha = args[3].tag == CW_INT ? (double)args[3].v.i : args[3].v.d;
  for (int64_t i = 0; i < count(t[0]); ++i)
    ((float*)t[0]->data)[i] = ((float*)t[1]->data)[i] + (float)alpha * ((float*)t[2]->data)[i];
  return CW_OK;
}

/* aten::neg.out(self, *, out): takes what has at most eight elements, and declines the rest. */
static cw_status neg(const cw_arg* args, int32_t n, cw_stream stream) {
  const DLTensor *out = args[0].v.tensor, *in = args[1].v.tensor;
  (void)stream;
  if (n != 2) return refuse("neg.out has two arguments");
  if (count(out) > 8) return CW_UNSUPPORTED;
  for (int64_t i = 0; i < count(out); ++i) ((float*)out->data)[i] = -((float*)in->data)[i];
  return CW_OK;
}

/* aten::native_batch_norm: no more of it than that it writes the running mean, which is no output: seven everywhere. */
static cw_status batch_norm(const cw_arg* args, int32_t n, cw_stream stream) {
  (void)stream;
  if (n != 11 || args[6].tag != CW_TENSOR) return refuse("native_batch_norm has eleven arguments");
  const DLTensor* mean = args[6].v.tensor;
  if (!dense(mean)) return refuse("it asked for contiguous tensors");
  for (int64_t i = 0; i < count(mean); ++i) ((float*)mean->data)[i] = 7;
  return CW_OK;
}

/* aten::_foreach_mul.Scalar_out(self[], scalar, *, out[]): the outputs first, which may be the list itself. */
static cw_status mul_lists(const cw_arg* args, int32_t n, cw_stream stream) {
  (void)stream;
  if (n != 3 || args[0].tag != CW_TENSOR_LIST || args[1].tag != CW_TENSOR_LIST || args[0].n != args[1].n)
    return refuse("_foreach_mul.Scalar_out has out, self and scalar");
  const double by = args[2].tag == CW_INT ? (double)args[2].v.i : args[2].v.d;
  if (by == 0) return CW_UNSUPPORTED;
  for (uint32_t k = 0; k < args[0].n; ++k) {
    const DLTensor *out = args[0].v.tensors[k], *in = args[1].v.tensors[k];
    if (!dense(out) || !dense(in)) return refuse("it asked for contiguous tensors");
    if (out->dtype.bits != 32 || out->dtype.code != kDLFloat) return refuse("it takes float32 only");
    for (int64_t i = 0; i < count(out); ++i) ((float*)out->data)[i] = ((float*)in->data)[i] * (float)by;
  }
  return CW_OK;
}

/* aten::_foreach_neg_(self[]): only in place. Declines more than three tensors. */
static cw_status neg_lists(const cw_arg* args, int32_t n, cw_stream stream) {
  (void)stream;
  if (n != 1 || args[0].tag != CW_TENSOR_LIST) return refuse("_foreach_neg_ has self");
  if (args[0].n > 3) return CW_UNSUPPORTED;
  for (uint32_t k = 0; k < args[0].n; ++k) {
    const DLTensor* t = args[0].v.tensors[k];
    for (int64_t i = 0; i < count(t); ++i) ((float*)t->data)[i] = -((float*)t->data)[i];
  }
  return CW_OK;
}

static const cw_host* host;

#ifdef ASKS_STORAGE /* the first abi.h has no host->storage */
/* aten::cos.out(self, *, out): no cosine, but the bytes before and of the memory that `self` is a part of; minus ones where
 * that is not known. */
static cw_status storage(const cw_arg* args, int32_t n, cw_stream stream) {
  (void)stream;
  if (n != 2 || count(args[0].v.tensor) < 2) return refuse("it takes two elements and more");
  if (host->struct_size <= offsetof(cw_host, storage)) return refuse("there is no host->storage");
  float* out = (float*)args[0].v.tensor->data;
  uint64_t before = 0, bytes = 0;
  const cw_status status = host->storage(args[1].v.tensor, &before, &bytes);
  if (status != CW_OK && status != CW_UNSUPPORTED) return refuse("host->storage failed");
  out[0] = status ? -1 : (float)before;
  out[1] = status ? -1 : (float)bytes;
  const DLTensor other = *args[1].v.tensor; /* no argument of this call */
  return host->storage(&other, &before, &bytes) == CW_INVALID ? CW_OK : refuse("any tensor has a storage");
}
#endif

static cw_status op_find(const char* name, cw_op* out) {
  cw_op op = {.struct_size = out->struct_size, .needs = CW_NEEDS_CONTIGUOUS, .dtypes = CW_FLOAT32};
  if (strcmp(name, "aten::add.out") == 0) {
    op.needs |= CW_NEEDS_BROADCAST | CW_NEEDS_PROMOTION | CW_NEEDS_ELEMENTS;
    op.kernel = add;
  } else if (strcmp(name, "aten::neg.out") == 0) {
    op.kernel = neg;
  } else if (strcmp(name, "aten::native_batch_norm") == 0) {
    op.kernel = batch_norm;
  } else if (strcmp(name, "aten::_foreach_mul.Scalar_out") == 0) {
    op.kernel = mul_lists;
  } else if (strcmp(name, "aten::_foreach_neg_") == 0) {
    op.kernel = neg_lists;
#ifdef ASKS_STORAGE
  } else if (strcmp(name, "aten::cos.out") == 0) {
    op.kernel = storage;
#endif
  } else {
    return CW_UNSUPPORTED;
  }
  *out = op;
  return CW_OK;
}

static const cw_backend table = {BASE_HEAD, BASE_LEVEL_0, .last_error = last_error, .op_find = op_find};

const cw_backend* cw_open_v1(const cw_host* given) {
  host = given;
  return &table;
}
