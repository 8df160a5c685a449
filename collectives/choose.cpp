#include "collectives/choose.h"

#include <initializer_list>
#include <string>

#include "core/error.h"

namespace tutti {
namespace {

// Below: a message fits a slot and the latency of one exchange is all that counts.
constexpr std::size_t kSmall = std::size_t{16} << 10;
// Above: copying through slots costs more than telling everyone where the buffers are.
constexpr std::size_t kLarge = std::size_t{32} << 10;
// Above: everyone-to-everyone costs more messages than a logarithmic number of rounds.
constexpr int kManyRanks = 16;

const Algorithm& first_of(Collective c, std::initializer_list<std::string_view> names) {
  for (const std::string_view n : names) {
    if (const Algorithm* a = find_algorithm(c, n)) return *a;
  }
  throw Error(ErrorCode::internal, "no algorithm for " + std::string(name(c)));
}

}  // namespace

const Algorithm& choose_algorithm(Collective c, int ranks, std::size_t bytes, bool windows) {
  const bool many = ranks > kManyRanks;
  const bool large = bytes > kLarge && windows;
  switch (c) {
    case Collective::all_reduce:
      if (large) return first_of(c, {"two_shot_window"});
      if (many) return first_of(c, {bytes <= kSmall ? "recursive_doubling" : "ring"});
      return first_of(c, {bytes <= kSmall ? "one_shot" : "two_shot"});
    case Collective::all_gather:
    case Collective::reduce_scatter:
      if (large) return first_of(c, {"direct_window"});
      return first_of(c, {many ? "bruck" : "direct"});
    case Collective::broadcast:
    case Collective::reduce:
      if (large) return first_of(c, {"direct_window"});
      if (many) return first_of(c, {bytes <= kSmall ? "tree" : "chain"});
      return first_of(c, {"direct"});
    case Collective::gather:
    case Collective::scatter:
      if (large) return first_of(c, {"direct_window"});
      return first_of(c, {many && bytes <= kSmall ? "binomial" : "direct"});
    case Collective::all_to_all:
      return first_of(c, {large ? "direct_window" : "pairwise"});
    case Collective::all_gather_v:
    case Collective::reduce_scatter_v:
      return first_of(c, {large ? "direct_window" : "ring"});
    case Collective::all_to_all_v:
      return first_of(c, {"pairwise"});
    case Collective::send_recv:
    case Collective::barrier:
      break;
  }
  for (const Algorithm& a : algorithms()) {
    if (a.collective == c) return a;
  }
  throw Error(ErrorCode::internal, "no algorithm for " + std::string(name(c)));
}

}  // namespace tutti
