// An LSTM over all its steps and layers, and the gradient. Gates are in torch's order: input, forget, cell, output; AscendCL
// calls the cell's j. Each layer and direction has a tensor in the lists of what the gradient needs.
#include "op.hpp"

using namespace ops;

namespace {

using Values = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Net {
  View input;
  std::vector<View> weights, start;
  int64_t layers, directions, per, steps, batch, hidden;
  bool biases, batch_first;

  int64_t width(int64_t layer) const { return layer ? hidden * directions : input.shape[2]; }
};

Net net(Op& op, const View& input, const std::vector<View>& weights, const std::vector<View>& start, T sizes,
        bool biases, int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  (void)op;
  Net n{input, weights, start, layers, bidirectional ? 2 : 1, biases ? 4 : 2, 0, 0, 0, biases, batch_first};
  need_float(input, "the input");
  if (sizes) reject("packed sequences are not modelled");
  if (dropout != 0 && train && layers > 1) reject("dropout between layers is not modelled");
  if (input.rank() != 3) reject("the input has shape %s, expected 3 dimensions", text_of(input.shape).c_str());
  if (int64_t(weights.size()) != layers * n.directions * n.per)
    reject("%zu parameters for %ld layers", weights.size(), long(layers));
  if (!start.empty() && start.size() != 2) reject("%zu tensors of the first state, expected none or 2", start.size());
  if (batch_first) n.input = input.permuted({1, 0, 2});
  n.steps = n.input.shape[0];
  n.batch = n.input.shape[1];
  n.hidden = weights[1].dim(-1);
  for (int64_t l = 0; l < layers * n.directions; ++l) {
    same_shape(weights[size_t(l * n.per)], {4 * n.hidden, n.width(l / n.directions)}, "a weight of the input");
    same_shape(weights[size_t(l * n.per + 1)], {4 * n.hidden, n.hidden}, "a weight of the state");
  }
  return n;
}

size_t step_of(const Net& n, int64_t i, int64_t direction) { return size_t(direction ? n.steps - 1 - i : i); }

// y[rows of x, out] += x[.., in] w[out, in]^T
void add_product(const double* x, const Values& w, double* y, int64_t rows, int64_t in, int64_t out) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o) {
      double all = 0;
      for (int64_t i = 0; i < in; ++i) all += x[r * in + i] * w[size_t(o * in + i)];
      y[r * out + o] += all;
    }
}

View sequence_first(const View& view, bool batch_first) { return batch_first ? view.permuted({1, 0, 2}) : view; }

}  // namespace

OP(LSTM,
   (T input, L params, L start, T sizes, bool biases, i64 layers, double dropout, bool train, bool bidirectional,
    bool batch_first, O result, O last_h, O last_c, L list_i, L list_j, L list_f, L list_o, L list_h, L list_c,
    L list_tanh),
   {
     View in = op.in(input);
     auto weights = op.all(params);
     auto first = start ? op.all(start) : std::vector<View>();
     Net n = net(op, in, weights, first, sizes, biases, layers, dropout, train, bidirectional, batch_first);
     View out = sequence_first(op.out(result), batch_first), hy = op.out(last_h), cy = op.out(last_c);
     same_shape(out, {n.steps, n.batch, n.hidden * n.directions}, "the result");
     same_shape(hy, {layers * n.directions, n.batch, n.hidden}, "the last state");
     same_shape(cy, hy.shape, "the last cell");
     std::vector<std::vector<View>> kept;
     for (L list : {list_i, list_j, list_f, list_o, list_h, list_c, list_tanh})
       kept.push_back(list ? op.all_out(list) : std::vector<View>());
     if (train)
       for (auto& list : kept)
         if (int64_t(list.size()) != layers * n.directions)
           reject("a list of %zu tensors for %ld layers", list.size(), long(layers));
     op.run([=] {
       size_t state = size_t(n.batch * n.hidden), whole = size_t(n.steps) * state;
       Values x = load<double>(n.input), h0 = first.empty() ? Values(size_t(hy.numel())) : load<double>(first[0]),
              c0 = first.empty() ? Values(size_t(hy.numel())) : load<double>(first[1]);
       Values h_end, c_end;
       for (int64_t layer = 0; layer < n.layers; ++layer) {
         Values y(whole * size_t(n.directions));
         for (int64_t d = 0; d < n.directions; ++d) {
           size_t which = size_t(layer * n.directions + d), at = which * size_t(n.per);
           Values w = load<double>(n.weights[at]), u = load<double>(n.weights[at + 1]),
                  b = n.biases ? load<double>(n.weights[at + 2]) : Values(size_t(4 * n.hidden)),
                  b2 = n.biases ? load<double>(n.weights[at + 3]) : Values(size_t(4 * n.hidden));
           Values h(h0.begin() + long(which * state), h0.begin() + long((which + 1) * state)),
               c(c0.begin() + long(which * state), c0.begin() + long((which + 1) * state));
           Values gates[7];
           for (Values& each : gates) each.resize(whole);
           for (int64_t i = 0; i < n.steps; ++i) {
             size_t t = step_of(n, i, d);
             Values g(4 * state);
             for (size_t k = 0; k < g.size(); ++k) g[k] = b[k % b.size()] + b2[k % b2.size()];
             add_product(x.data() + t * size_t(n.batch * n.width(layer)), w, g.data(), n.batch, n.width(layer),
                         4 * n.hidden);
             add_product(h.data(), u, g.data(), n.batch, n.hidden, 4 * n.hidden);
             for (size_t k = 0; k < state; ++k) {
               size_t row = k / size_t(n.hidden), column = k % size_t(n.hidden),
                      from = row * size_t(4 * n.hidden) + column, to = t * state + k;
               double gi = sigmoid(g[from]), gf = sigmoid(g[from + size_t(n.hidden)]),
                      gj = std::tanh(g[from + size_t(2 * n.hidden)]), go = sigmoid(g[from + size_t(3 * n.hidden)]);
               c[k] = gf * c[k] + gi * gj;
               double bent = std::tanh(c[k]);
               h[k] = go * bent;
               double all[] = {gi, gj, gf, go, h[k], c[k], bent};
               for (size_t q = 0; q < 7; ++q) gates[q][to] = all[q];
               y[(t * size_t(n.batch) + row) * size_t(n.hidden * n.directions) + size_t(d * n.hidden) + column] = h[k];
             }
           }
           for (size_t q = 0; q < 7; ++q)
             if (which < kept[q].size()) store(kept[q][which], gates[q]);
           h_end.insert(h_end.end(), h.begin(), h.end());
           c_end.insert(c_end.end(), c.begin(), c.end());
         }
         x = y;
       }
       store(out, x);
       store(hy, h_end);
       store(cy, c_end);
     });
   })

OP(LstmBackward,
   (T input, L start, L params, T gradient, T gradient_h, T gradient_c, L list_i, L list_j, L list_f, L list_o,
    L list_h, L list_c, L list_tanh, T sizes, bool biases, i64 layers, double dropout, bool train, bool bidirectional,
    bool batch_first, B, O to_input, O to_h, O to_c, L to_params),
   {
     View in = op.in(input);
     auto first = start ? op.all(start) : std::vector<View>();
     auto weights = op.all(params);
     Net n = net(op, in, weights, first, sizes, biases, layers, dropout, train, bidirectional, batch_first);
     View dy = op.maybe(gradient), dh_end = op.maybe(gradient_h), dc_end = op.maybe(gradient_c);
     if (dy) dy = sequence_first(dy, batch_first);
     std::vector<std::vector<View>> kept;
     for (L list : {list_i, list_j, list_f, list_o, list_h, list_c, list_tanh}) {
       kept.push_back(op.all(list));
       if (int64_t(kept.back().size()) != layers * n.directions)
         reject("a list of %zu tensors for %ld layers", kept.back().size(), long(layers));
     }
     View gx = sequence_first(op.out(to_input), batch_first), gh = op.out(to_h), gc = op.out(to_c);
     auto gw = op.all_out(to_params);
     op.run([=] {
       size_t state = size_t(n.batch * n.hidden), whole = size_t(n.steps) * state,
              wide = size_t(n.hidden * n.directions), H = size_t(n.hidden);
       Values slope = dy ? load<double>(dy) : Values(whole * size_t(n.directions));
       Values dh_all = dh_end ? load<double>(dh_end) : Values(size_t(gh.numel())),
              dc_all = dc_end ? load<double>(dc_end) : Values(size_t(gc.numel()));
       Values h0 = first.empty() ? Values(size_t(gh.numel())) : load<double>(first[0]),
              c0 = first.empty() ? Values(size_t(gc.numel())) : load<double>(first[1]);
       for (int64_t layer = n.layers; layer--;) {
         int64_t width = n.width(layer);
         // What the layer got: the input, or the states of the layer below side by side.
         Values x(size_t(n.steps * n.batch * width));
         if (!layer) {
           x = load<double>(n.input);
         } else {
           for (int64_t d = 0; d < n.directions; ++d) {
             Values below = load<double>(kept[4][size_t((layer - 1) * n.directions + d)]);
             for (size_t k = 0; k < whole; ++k) x[k / H * wide + size_t(d) * H + k % H] = below[k];
           }
         }
         Values dx(x.size());
         for (int64_t d = 0; d < n.directions; ++d) {
           size_t which = size_t(layer * n.directions + d), at = which * size_t(n.per);
           Values w = load<double>(n.weights[at]), u = load<double>(n.weights[at + 1]), dw(w.size()), du(u.size()),
                  db(4 * H);
           Values g[7];
           for (size_t q = 0; q < 7; ++q) g[q] = load<double>(kept[q][which]);
           Values dh(dh_all.begin() + long(which * state), dh_all.begin() + long((which + 1) * state)),
               dc(dc_all.begin() + long(which * state), dc_all.begin() + long((which + 1) * state));
           for (int64_t i = n.steps; i--;) {
             size_t t = step_of(n, i, d);
             Values dg(4 * state);
             auto before = [&](const Values& kept_values, const Values& begin, size_t k) {
               return i ? kept_values[step_of(n, i - 1, d) * state + k] : begin[which * state + k];
             };
             for (size_t k = 0; k < state; ++k) {
               size_t row = k / H, column = k % H, from = t * state + k, to = row * 4 * H + column;
               double gi = g[0][from], gj = g[1][from], gf = g[2][from], go = g[3][from], bent = g[6][from];
               double up = dh[k] + slope[(t * size_t(n.batch) + row) * wide + size_t(d) * H + column];
               double cell = dc[k] + up * go * (1 - bent * bent);
               dg[to] = cell * gj * gi * (1 - gi);
               dg[to + H] = cell * before(g[5], c0, k) * gf * (1 - gf);
               dg[to + 2 * H] = cell * gi * (1 - gj * gj);
               dg[to + 3 * H] = up * bent * go * (1 - go);
               dc[k] = cell * gf;
               dh[k] = 0;
             }
             for (int64_t row = 0; row < n.batch; ++row)
               for (size_t o = 0; o < 4 * H; ++o) {
                 double each = dg[size_t(row) * 4 * H + o];
                 db[o] += each;
                 size_t from = (t * size_t(n.batch) + size_t(row)) * size_t(width);
                 for (size_t k = 0; k < size_t(width); ++k) {
                   dw[o * size_t(width) + k] += each * x[from + k];
                   dx[from + k] += each * w[o * size_t(width) + k];
                 }
                 for (size_t k = 0; k < H; ++k) {
                   du[o * H + k] += each * before(g[4], h0, size_t(row) * H + k);
                   dh[size_t(row) * H + k] += each * u[o * H + k];
                 }
               }
           }
           std::copy(dh.begin(), dh.end(), dh_all.begin() + long(which * state));
           std::copy(dc.begin(), dc.end(), dc_all.begin() + long(which * state));
           store(gw[at], dw);
           store(gw[at + 1], du);
           if (n.biases) {
             store(gw[at + 2], db);
             store(gw[at + 3], db);
           }
         }
         slope = dx;
       }
       store(gx, slope);
       store(gh, dh_all);
       store(gc, dc_all);
     });
   })
