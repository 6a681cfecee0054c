// The product of matrices that matmul and the convolutions share: C[m, n] = sum over k of A[m, k] * B[k, n], where B
// may be anything that an expression can read.
#pragma once

#include "portable/tune.h"

namespace causeway::portable {

// The source of a product. A is read at `a_base + m * am + k * ak`. What it is a product of is text that the caller gives
// before, by macros that gemm.cl names.
struct Product {
  Cut cut;
  Dtype a, type;           // of A's elements; what is computed in: f32 or f64
  bool a_dense = false;    // ak is 1
  bool a_across = false;   // am is 1
  bool out_across = false; // neighbours in memory of the result are neighbours in m
  bool b_along_k = false;  // neighbours in memory are neighbours in k
};

// Adds the parameters that the product needs after the caller's, and gives the kernel's text.
std::string product_text(Source& source, const Product& product, const Device& device);
// The text where the result has at most `columns`, of which those beyond N are computed as the first and not written, and A's
// rows and B's columns, which begin at COLUMN_AT(n), lie dense in k and are of the type that is computed in (CPUs). Adds the
// parameters units, M, N, K and am.
constexpr int kFewColumns = 4;
std::string columns_text(Source& source, const Product& product, int columns, const Device& device);
// Of vectors alone, on CPUs: T, V, LANES_OF_V, LOADV, STOREV, STORETILE into an item's own memory, FMAV, ZERO.
void vector_definitions(Source& source, Dtype type, const Device& device);
int vector_lanes(const Device& device, Dtype type);  // LANES_OF_V
// Only the definitions of a tile in registers, on CPUs: for a kernel with loops of its own around TILE_ZERO and what follows
// it. TILE_STEP adds the products of the elements at `row`, one for each row, and the panel's at `b`.
void tile_definitions(Source& source, const Product& product, const Device& device);

// HEAD: elements of the workspace before the first item's, of which one is the count of what is taken.
constexpr int kHead = 16;
// How an item of a CPU goes about it.
struct Panels {
  int64_t together = 1;  // panels that it packs at a time
  int64_t chunk = 0;  // k of them
  int64_t block = 0;  // rows of A that it copies at a time
  int64_t kept_rows = 0;  // whose sums are kept between stretches of k, of each panel
  int64_t slot = 0;  // elements of the workspace
};
Panels panels_of(const Cut& cut, const ProductSize& size, bool in_place);

// Whether A's rows are read where they lie, on CPUs, and not copied.
bool in_place(const Cut& cut, Dtype a, bool a_dense);

// The workspace, which the first parameter of the function must be; NULL where none is needed.
cw_status product_scratch(KernelCall& call, const Cut& cut, const ProductSize& size, Dtype dtype, bool a_dense,
                          void** out);

// Adds their values and launches. `sums` is the function of the cut `last_of(cut)`, where there is one.
cw_status product_launch(KernelCall& call, Launch& launch, Turn& turn, cw_function function, cw_function sums,
                         void* workspace, const ProductSize& size, Dtype dtype, int64_t am, int64_t ak);

// Another number where the kernels are others.
uint64_t product_version();

// Runs a product of matrices of `dtype` by the cut whose turn it is. `function_of(cut, &function)` builds, with the
// workspace as the first parameter; `fill(launch)` adds what stands between that and the product's own parameters.
template <class FunctionOf, class Fill>
cw_status run_product(KernelCall& call, Turn::Use use, Dtype dtype, const ProductSize& size, int64_t am, int64_t ak,
                      const FunctionOf& function_of, const Fill& fill) {
  return with_cut(call, use, dtype, size, [&](Turn& turn) {
    cw_function function = nullptr, sums = nullptr;
    TRY(function_of(turn.cut(), &function));
    if (turn.cut().parts > 1) TRY(function_of(sums_of(turn.cut()), &sums));
    void* workspace = nullptr;
    TRY(product_scratch(call, turn.cut(), size, dtype, ak == 1, &workspace));
    Launch launch;
    launch.pointer(workspace);
    fill(launch);
    return product_launch(call, launch, turn, function, sums, workspace, size, dtype, am, ak);
  });
}

// The sum of `in` over `dims` into `out`, on the call's stream.
cw_status sum_into(KernelCall& call, const Tensor& out, const Tensor& in, const std::vector<int64_t>& dims);

}  // namespace causeway::portable
