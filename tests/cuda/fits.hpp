// Whether a function that is declared from documentation may be called as the real one is: the same number of parameters,
// each passed alike.
#pragma once

#include <type_traits>

// Passed alike in C: pointers (handles are pointers to structures of the maker's own), or numbers of one kind and size.
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>)
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  else
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B> &&
           (std::is_integral_v<A> || std::is_enum_v<A> || std::is_same_v<A, B>) &&
           (std::is_integral_v<B> || std::is_enum_v<B> || std::is_same_v<A, B>);
}

// What a pointer points to matters where it is a number that the other side writes or reads: size_t is no int.
template <class A, class B>
constexpr bool same_number() {
  using C = std::remove_cv_t<std::remove_pointer_t<A>>;
  using D = std::remove_cv_t<std::remove_pointer_t<B>>;
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B> && std::is_arithmetic_v<C> && std::is_arithmetic_v<D>)
    return sizeof(C) == sizeof(D);
  else
    return true;
}

template <class F, class G>
struct Fits : std::false_type {};
template <class R, class... A, class S, class... B>
struct Fits<R(A...), S(B...)> {
  static constexpr bool count = sizeof...(A) == sizeof...(B);
  template <bool>
  static constexpr bool all() {
    return (alike<A, B>() && ...) && (same_number<A, B>() && ...);
  }
  static constexpr bool check() {
    if constexpr (count)
      return all<true>() && alike<R, S>();
    else
      return false;
  }
  static constexpr bool value = check();
};
template <class F, class G>
constexpr bool fits = Fits<std::remove_pointer_t<F>, std::remove_pointer_t<G>>::value;
