// A call of a vendor's library as a pattern over an operator's arguments: which of torch's goes where.
//
// For libraries whose functions follow one convention, so that an operator is a line of a table:
//
//   With<0, 1, Number{2}>   // f(out, self, other), where `other` came as a number
//
// Each token makes one parameter or more of the call. A plain int is the argument of that place (outputs first), passed as
// its type asks; an enum is a word of the vendor's own, with the place in it or a constant; a function is asked. What a
// token makes is said once for all lines, by `get` of a template `Word<Op>`:
//
//   template <class Op> struct Word {
//     template <int place> static auto get(Frame&, std::integral_constant<int, place>);  // a std::tuple of parameters
//     template <Dim word> static auto get(Frame&, std::integral_constant<Dim, word>); ...
//   };
//
// `Frame` is the vendor's, for one call: it has the arguments, and what is made of them lives in it. The vendors of DIOPI's
// libraries and of Ascend's NPUs are made so. C++17; needs op.hpp.
#ifndef CAUSEWAY_PATTERN_HPP
#define CAUSEWAY_PATTERN_HPP

#include <tuple>
#include <type_traits>
#include <utility>

#include "op.hpp"

namespace cw {

enum class Number : int {};  // the argument of this place, that is or came as a number

template <auto token>
using Token = std::integral_constant<std::remove_cv_t<decltype(token)>, token>;

template <template <class> class Word, class Frame, auto... tokens>
struct Pattern {
  template <class Op>
  using Parameters = decltype(std::tuple_cat(Word<Op>::get(std::declval<Frame&>(), Token<tokens>())...));

  template <class Op>
  static Parameters<Op> parameters([[maybe_unused]] Frame& frame) {
    return Parameters<Op>(std::tuple_cat(Word<Op>::get(frame, Token<tokens>())...));
  }

  // Whether the arguments are those of this call: a number where it takes a number, a tensor where a tensor.
  template <class Op>
  static bool fits(const cw_arg* args) {
    return (fits_token<Op>(args, Token<tokens>()) && ...);
  }

  static constexpr bool takes_number = (std::is_same_v<std::remove_cv_t<decltype(tokens)>, Number> || ...);

 private:
  template <class Op, class T, T token>
  static bool fits_token([[maybe_unused]] const cw_arg* args, std::integral_constant<T, token>) {
    if constexpr (std::is_same_v<T, Number>) return is_number(args[static_cast<int>(token)]);
    if constexpr (std::is_same_v<T, int>)
      if constexpr (is_tensor<typename Op::arguments::template at<static_cast<size_t>(token)>>)
        return !is_number(args[token]);
    return true;
  }
};

template <class T>
bool matches_type(const cw_arg& arg) {
  return Argument<T>::is(arg) || (is_tensor<T> && is_number(arg));
}
template <class Op, size_t... place>
bool matches_all([[maybe_unused]] const cw_arg* args, std::index_sequence<place...>) {
  return (matches_type<typename Op::arguments::template at<place>>(args[place]) && ...);
}
// Whether the arguments are those of the operator, but that a number may stand for a tensor.
template <class Op>
bool matches(const cw_arg* args, int32_t n) {
  constexpr size_t count = Op::arguments::size;
  return n == static_cast<int32_t>(count) && matches_all<Op>(args, std::make_index_sequence<count>());
}

// Whether some argument that is a tensor came as a number.
template <class Op, size_t... place>
bool has_number_at([[maybe_unused]] const cw_arg* args, std::index_sequence<place...>) {
  return ((is_tensor<typename Op::arguments::template at<place>> && is_number(args[place])) || ...);
}
template <class Op>
bool has_number(const cw_arg* args) {
  return has_number_at<Op>(args, std::make_index_sequence<Op::arguments::size>());
}

}  // namespace cw

#endif  // CAUSEWAY_PATTERN_HPP
