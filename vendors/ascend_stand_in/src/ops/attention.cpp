// FlashAttentionScore and its gradient: softmax(scale q k^T + pse, masked) with dropout, times v. Layouts by letters: B batch,
// N heads, S positions, D width, H all heads' widths. A set element of the mask is left out.
#include "op.hpp"

#include <algorithm>

using namespace ops;

namespace {

using Values = std::vector<double>;

// A query, key or value as [B, N, S, D].
View by_heads(const View& view, const std::string& layout, int64_t heads, const char* what) {
  auto expect = [&](int64_t rank) {
    if (view.rank() != rank)
      reject("%s has shape %s, the layout is %s", what, text_of(view.shape).c_str(), layout.c_str());
  };
  if (layout == "BNSD") {
    expect(4);
    return view;
  }
  if (layout == "BSND") {
    expect(4);
    return view.permuted({0, 2, 1, 3});
  }
  if (layout == "BSH" || layout == "SBH") {
    expect(3);
    if (view.shape[2] % heads) reject("%s has width %ld for %ld heads", what, long(view.shape[2]), long(heads));
    View split = view;
    int64_t width = view.shape[2] / heads;
    split.shape = {view.shape[0], view.shape[1], heads, width};
    split.stride = {view.stride[0], view.stride[1], view.stride[2] * width, view.stride[2]};
    return layout == "BSH" ? split.permuted({0, 2, 1, 3}) : split.permuted({1, 2, 0, 3});
  }
  reject("the layout %s is not known; BNSD, BSND, BSH and SBH are", layout.c_str());
}

struct Problem {
  View q, k, v, mask, dropped;
  int64_t batch, heads, kv_heads, rows, columns, width, v_width;
  double scale, keep;
  int64_t sparse, before, after;

  // Whether a query may see a key.
  bool seen(int64_t r, int64_t c, const std::vector<int64_t>& m, int64_t b, int64_t h) const {
    switch (sparse) {
      case 2:  // Causal, aligned at the first position; the mask given is a compressed one.
        return c <= r;
      case 3:  // And at the last.
        return c <= r + columns - rows;
      case 4:  // A band, aligned at the last.
        return c <= r + columns - rows + after && c >= r + columns - rows - before;
      default:
        break;
    }
    if (sparse == 0 && (c > r + after || c < r - before)) return false;
    if (!mask) return true;
    size_t at = size_t(r * columns + c);
    if (mask.rank() == 4)
      at += size_t(((mask.shape[0] == 1 ? 0 : b) * mask.shape[1] + (mask.shape[1] == 1 ? 0 : h)) * rows * columns);
    return !m[at];
  }
};

struct Inputs {
  T query, key, value, gradient, pse, dropped, padding, mask;
  double scale, keep;
  int64_t before, after, heads;
  Chars layout;
  int64_t sparse;
};

Problem problem(Op& op, const Inputs& in) {
  auto [query, key, value, gradient, pse, dropped, padding, mask, scale, keep, before, after, heads, layout, sparse] =
      in;
  Problem p;
  if (!layout) throw Refusal(161001, "the layout is NULL");
  p.q = op.in(query, "the query");
  p.k = op.in(key, "the key");
  p.v = op.in(value, "the value");
  need_matrix(p.q, "the query");
  if (p.q.dtype != p.k.dtype || p.q.dtype != p.v.dtype)
    reject("query, key and value are %s, %s and %s", name_of(p.q.dtype), name_of(p.k.dtype), name_of(p.v.dtype));
  if (pse || padding) reject("positional shifts and padding masks are not modelled");
  if (heads < 1) reject("%ld heads", long(heads));
  if (sparse < 0 || sparse > 4) reject("sparse mode %ld is not modelled", long(sparse));
  p.q = by_heads(p.q, layout, heads, "the query");
  p.batch = p.q.shape[0], p.heads = heads, p.rows = p.q.shape[2], p.width = p.q.shape[3];
  if (p.q.shape[1] != heads) reject("the query has %ld heads, told are %ld", long(p.q.shape[1]), long(heads));
  int64_t kv = p.k.rank() == 4 ? p.k.shape[std::string(layout) == "BNSD" ? 1 : 2] : p.k.shape[2] / p.width;
  p.k = by_heads(p.k, layout, kv, "the key");
  p.v = by_heads(p.v, layout, kv, "the value");
  p.kv_heads = kv, p.columns = p.k.shape[2], p.v_width = p.v.shape[3];
  if (kv < 1 || heads % kv) reject("%ld heads of the query for %ld of the key", long(heads), long(kv));
  if (p.k.shape[0] != p.batch || p.k.shape[3] != p.width || p.v.shape[2] != p.columns || p.v.shape[0] != p.batch)
    reject("query %s, key %s and value %s do not fit", text_of(p.q.shape).c_str(), text_of(p.k.shape).c_str(),
           text_of(p.v.shape).c_str());
  p.mask = op.maybe(mask);
  if (p.mask && sparse < 2) {
    Dims end{p.rows, p.columns};
    if (p.mask.rank() < 2 || !std::equal(end.rbegin(), end.rend(), p.mask.shape.rbegin()))
      reject("the mask has shape %s", text_of(p.mask.shape).c_str());
    if (p.mask.rank() == 3) reject("a mask of 3 dimensions");
  }
  if (sparse >= 2 && !p.mask) reject("sparse mode %ld wants a mask", long(sparse));
  p.dropped = op.maybe(dropped);
  if (p.dropped) {
    int64_t bytes = (p.batch * p.heads * p.rows * p.columns + 7) / 8;
    if (p.dropped.storage < size_t(bytes))
      reject("the dropout mask has %zu bytes, %ld are needed", p.dropped.storage, long(bytes));
    p.dropped.dtype = kUint8;
    p.dropped.shape = {bytes};
    p.dropped.stride = {1};
  }
  if (keep < 1 && !dropped) reject("dropout without its mask: the kernel's own random numbers are not modelled");
  if (!(keep > 0 && keep <= 1)) reject("a probability to keep of %g", keep);
  p.scale = scale, p.keep = keep, p.sparse = sparse, p.before = before, p.after = after;
  return p;
}

// each(b, h, scores before dropout [rows, columns], factors of the dropout, row maxima, row sums). In the gradient maxima and
// sums are those that are given, of all heads.
template <class Each>
void heads(const Problem& p, Each each, const Values* given_top = nullptr, const Values* given_sum = nullptr) {
  Values q = load<double>(p.q), k = load<double>(p.k);
  auto mask = p.mask && p.sparse < 2 ? load<int64_t>(p.mask) : std::vector<int64_t>();
  auto bits = p.dropped ? load<int64_t>(p.dropped) : std::vector<int64_t>();
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      int64_t g = b * p.kv_heads + h / (p.heads / p.kv_heads);
      Values s(size_t(p.rows * p.columns)), factor(s.size(), 1), most(static_cast<size_t>(p.rows)),
          sum(static_cast<size_t>(p.rows));
      for (int64_t r = 0; r < p.rows; ++r) {
        double* row = s.data() + r * p.columns;
        const double* x = q.data() + ((b * p.heads + h) * p.rows + r) * p.width;
        double top = -INFINITY, all = 0;
        for (int64_t c = 0; c < p.columns; ++c) {
          double dot = 0;
          const double* y = k.data() + (g * p.columns + c) * p.width;
          for (int64_t d = 0; d < p.width; ++d) dot += x[d] * y[d];
          row[c] = p.seen(r, c, mask, b, h) ? dot * p.scale : -INFINITY;
          top = std::max(top, row[c]);
        }
        if (given_top) top = (*given_top)[size_t(((b * p.heads + h) * p.rows + r) * 8)];
        for (int64_t c = 0; c < p.columns; ++c) all += row[c] = std::isinf(top) ? 0 : std::exp(row[c] - top);
        if (given_sum) all = (*given_sum)[size_t(((b * p.heads + h) * p.rows + r) * 8)];
        for (int64_t c = 0; c < p.columns; ++c) row[c] = all > 0 ? row[c] / all : 0;
        most[size_t(r)] = top;
        sum[size_t(r)] = all;
      }
      if (p.keep < 1)
        for (size_t i = 0; i < factor.size(); ++i) {
          size_t at = size_t(b * p.heads + h) * factor.size() + i;
          factor[i] = bits.empty() || (bits[at / 8] >> at % 8 & 1) ? 1 / p.keep : 0;
        }
      each(b, h, g, s, factor, most, sum);
    }
}

}  // namespace

static void forward(Op& op, const Inputs& in, O softmax_max, O softmax_sum, O softmax_out, O result) {
  Problem p = problem(op, in);
  View top = op.out(softmax_max), all = op.out(softmax_sum);
  op.out_maybe(softmax_out);
  View out = by_heads(op.out(result), in.layout, p.heads, "the result");
  // Eight times the same for each row: a block of 32 bytes.
  same_shape(top, {p.batch, p.heads, p.rows, 8}, "the maxima");
  same_shape(all, {p.batch, p.heads, p.rows, 8}, "the sums");
  same_shape(out, {p.batch, p.heads, p.rows, p.v_width}, "the result");
  op.run([=] {
    Values v = load<double>(p.v), y(size_t(out.numel())), maxima, sums;
    heads(p, [&](int64_t b, int64_t h, int64_t g, const Values& s, const Values& factor, const Values& most,
                 const Values& sum) {
      for (int64_t r = 0; r < p.rows; ++r) {
        maxima.insert(maxima.end(), 8, most[size_t(r)]);
        sums.insert(sums.end(), 8, sum[size_t(r)]);
        double* to = y.data() + ((b * p.heads + h) * p.rows + r) * p.v_width;
        for (int64_t c = 0; c < p.columns; ++c) {
          double weight = s[size_t(r * p.columns + c)] * factor[size_t(r * p.columns + c)];
          const double* from = v.data() + (g * p.columns + c) * p.v_width;
          for (int64_t d = 0; d < p.v_width; ++d) to[d] += weight * from[d];
        }
      }
    });
    store(top, maxima);
    store(all, sums);
    store(out, y);
  });
}

static void backward(Op& op, const Inputs& in, T softmax_max, T softmax_sum, T softmax_in, T attention, O to_query,
                     O to_key, O to_value, O to_pse) {
  Problem p = problem(op, in);
  View dy = by_heads(op.in(in.gradient), in.layout, p.heads, "the gradient");
  View top = op.in(softmax_max), all_of_row = op.in(softmax_sum);
  same_shape(top, {p.batch, p.heads, p.rows, 8}, "the maxima");
  same_shape(all_of_row, top.shape, "the sums");
  op.maybe(softmax_in);
  View result = by_heads(op.in(attention), in.layout, p.heads, "the result");
  same_shape(result, {p.batch, p.heads, p.rows, p.v_width}, "the result");
  View gq = by_heads(op.out(to_query), in.layout, p.heads, "the query's gradient"),
       gk = by_heads(op.out(to_key), in.layout, p.kv_heads, "the key's gradient"),
       gv = by_heads(op.out(to_value), in.layout, p.kv_heads, "the value's gradient");
  op.out_maybe(to_pse);
  same_shape(gq, p.q.shape, "the query's gradient");
  same_shape(gk, p.k.shape, "the key's gradient");
  same_shape(gv, p.v.shape, "the value's gradient");
  op.run([=] {
    Values q = load<double>(p.q), k = load<double>(p.k), v = load<double>(p.v), slope = load<double>(dy), dq(q.size()),
           dk(k.size()), dv(v.size()), maxima = load<double>(top), sums = load<double>(all_of_row),
           y = load<double>(result);
    const auto each = [&](int64_t b, int64_t h, int64_t g, const Values& s, const Values& factor, const Values&,
                          const Values&) {
      for (int64_t r = 0; r < p.rows; ++r) {
        size_t row = size_t((b * p.heads + h) * p.rows + r);
        const double* d = slope.data() + row * size_t(p.v_width);
        Values ds(static_cast<size_t>(p.columns));
        double all = 0;  // the sum of each weight times its gradient, which is that of the result's
        for (int64_t c = 0; c < p.v_width; ++c) all += d[c] * y[row * size_t(p.v_width) + size_t(c)];
        for (int64_t c = 0; c < p.columns; ++c) {
          size_t at = size_t(r * p.columns + c);
          const double* value_row = v.data() + (g * p.columns + c) * p.v_width;
          double* to = dv.data() + (g * p.columns + c) * p.v_width;
          double dot = 0;
          for (int64_t i = 0; i < p.v_width; ++i) {
            dot += d[i] * value_row[i];
            to[i] += d[i] * s[at] * factor[at];
          }
          ds[size_t(c)] = dot * factor[at];
        }
        for (int64_t c = 0; c < p.columns; ++c) {
          double by = (ds[size_t(c)] - all) * s[size_t(r * p.columns + c)] * p.scale;
          for (int64_t i = 0; i < p.width; ++i) {
            dq[row * size_t(p.width) + size_t(i)] += by * k[size_t((g * p.columns + c) * p.width + i)];
            dk[size_t((g * p.columns + c) * p.width + i)] += by * q[row * size_t(p.width) + size_t(i)];
          }
        }
      }
    };
    heads(p, each, &maxima, &sums);
    store(gq, dq);
    store(gk, dk);
    store(gv, dv);
  });
}

OP(FlashAttentionScore,
   (T query, T key, T value, T pse, T dropped, T padding, T mask, I, double scale, double keep, i64 before, i64 after,
    i64 heads_of_query, Chars layout, i64, i64 sparse, O softmax_max, O softmax_sum, O softmax_out, O result),
   {
     forward(op,
             {query, key, value, nullptr, pse, dropped, padding, mask, scale, keep, before, after, heads_of_query,
              layout, sparse},
             softmax_max, softmax_sum, softmax_out, result);
   })
OP(FlashAttentionScoreGrad,
   (T query, T key, T value, T gradient, T pse, T dropped, T padding, T mask, T softmax_max, T softmax_sum,
    T softmax_in, T attention, I, double scale, double keep, i64 before, i64 after, i64 heads_of_query, Chars layout,
    i64, i64 sparse, O to_query, O to_key, O to_value, O to_pse),
   {
     backward(op,
              {query, key, value, gradient, pse, dropped, padding, mask, scale, keep, before, after, heads_of_query,
               layout, sparse},
              softmax_max, softmax_sum, softmax_in, attention, to_query, to_key, to_value, to_pse);
   })

// The newest form, which torch_npu takes on the 950: with a rotated part, scales of 8 bits and a sink, none of which is modelled.
static void none_of(std::initializer_list<T> tensors) {
  for (T tensor : tensors)
    if (tensor) reject("a rotated part, a scale or a sink is given; they are not modelled");
}
OP(FlashAttentionScoreV4,
   (T query, T key, T value, T pse, T dropped, T padding, T mask, T rotated_q, T rotated_k, T scale_q, T scale_k,
    T scale_v, T sink, I, I, I, I, I, double scale, double keep, i64 before, i64 after, i64 heads_of_query,
    Chars layout, i64, i64 sparse, i64, i64, Chars, i64, i64, O softmax_max, O softmax_sum, O softmax_out, O result),
   {
     none_of({rotated_q, rotated_k, scale_q, scale_k, scale_v, sink});
     forward(op,
             {query, key, value, nullptr, pse, dropped, padding, mask, scale, keep, before, after, heads_of_query,
              layout, sparse},
             softmax_max, softmax_sum, softmax_out, result);
   })
OP(FlashAttentionScoreGradV4,
   (T query, T key, T value, T gradient, T pse, T dropped, T padding, T mask, T softmax_max, T softmax_sum,
    T softmax_in, T attention, T sink, T rotated_q, T rotated_k, T scale_q, T scale_k, T scale_v, T scale_d, T scale_o,
    I, I, I, I, I, double scale, double keep, i64 before, i64 after, i64 heads_of_query, Chars layout, Chars, i64,
    i64 sparse, i64, i64, i64, i64, O to_query, O to_key, O to_value, O, O, O to_pse, O),
   {
     none_of({sink, rotated_q, rotated_k, scale_q, scale_k, scale_v, scale_d, scale_o});
     backward(op,
              {query, key, value, gradient, pse, dropped, padding, mask, scale, keep, before, after, heads_of_query,
               layout, sparse},
              softmax_max, softmax_sum, softmax_in, attention, to_query, to_key, to_value, to_pse);
   })
