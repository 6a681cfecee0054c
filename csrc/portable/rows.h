// Rows on devices whose items run in parallel: a group's items form teams, and a team takes a row. Its items read
// neighbouring elements, or, where rows lie beside each other, neighbouring teams neighbouring rows. What the items of a
// team found is put together in local memory in a fixed order, so that results are the same at each run.
//
// A text of the dialect that is written for teams has, between `teams_text` and `each_row`:
//   TEAM, TEAMS, ITEMS   items of a team, teams of a group, items of a group: numbers
//   place, which         of an item in its team, and of its team in the group
//   EACH(j)              a loop over the elements j < n of the row that are this item's
//   HOLD(v), HELD(w)     in EACH: keep v of element j for a later EACH; what was kept, or w where KEPT is 0
//   ADD(s, low, v)       s += v, where what float32 loses goes to `low`; TOTAL(s, low) is both
// and functions made by `fold_text`, which each item of a group must call.
#pragma once

#include "portable/call.h"

namespace causeway::portable {

struct Teams {
  uint32_t items = 0;  // of a group; 0: the items of this device share nothing, and each takes rows of its own
  uint32_t team = 1;  // items that take a row: a power of two
  uint32_t kept = 0;  // elements of a row that each of them holds; 0: too many, the row is read again
  bool across = false;  // neighbouring items belong to neighbouring rows
  explicit operator bool() const { return items > 0; }
  int64_t groups(int64_t rows) const { return (rows + items / team - 1) / (items / team); }
  uint64_t bits() const;  // for a function's key: 24 bits
};

// Teams for `rows` rows of n elements; `across` where elements lie farther apart than rows do, `again` where a row is read
// more than once and its arithmetic hides the wait for a larger group.
Teams teams_of(const Device& device, int64_t rows, int64_t n, bool across = false, bool again = false);

// In how many parts to cut each of `rows` rows of n elements, so that the whole device has work.
int64_t parts_of(const Device& device, const Teams& teams, int64_t rows, int64_t n);

// What is in front of a kernel of teams. `wide` is the type A of sums: those of float32 are compensated.
std::string teams_text(const Teams& teams, Dtype wide);

// A function `type name(cells, LANE, v)`: `fold`, an expression of a and b, over the v of a team's items, for all of them.
// `cells` is LOCAL memory of 2 * ITEMS.
std::string fold_text(const std::string& name, const std::string& type, const std::string& fold);

// The best of a team's (v, at), for all of them: `void team_best(cells, ats, LANE, &v, &at)`; an `at` below 0 is nothing.
// `better` is an expression: v at i goes before w at j, as BETTER(v, i, w, j). `ats` are as many idx as `cells`.
std::string best_text(const std::string& type, const std::string& better);

// `body` for each row u < rows of this item's team. `mine` is false where a team has no row any more: it goes along, for
// the barriers, with the last row and must not write.
std::string each_row(const std::string& body, const std::string& rows = "rows");

// 32 bits are enough to divide indices below `count`, which is far cheaper.
inline bool is_short(int64_t count) { return count < int64_t{1} << 31; }

}  // namespace causeway::portable
