// The hellos of ranks that come to a rendezvous, which prove the secret and may say anything: the
// round refuses one hello, or fails for all with a sentence, or it is complete, and then its roster
// has the cards.
#include "bootstrap/rendezvous_round.h"

#include <set>

#include "bootstrap/rendezvous_protocol.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::rendezvous_round {
namespace {

using Phase = RendezvousRound::Phase;

/// Members one after the other: 0: a hello and a card; 1: it has the roster; 2: it leaves; 3: the
/// time passes.
void run(std::string_view input) {
  Input in(input);
  RendezvousRound round;
  for (int i = 0; i < 64 && !in.empty() && !round.over(); ++i) {
    switch (in.byte() % 4) {
      case 0: {
        const auto hello = in.value<protocol::Hello>();
        const auto card = bytes_in(in.take(in.byte()));
        if (round.phase() != Phase::joining) break;
        const auto error = round.join(hello, card, "somebody");
        if (error) require(*error->what() != 0, "a refusal says why");
        break;
      }
      case 1: {
        const int rank = static_cast<int>(in.byte());
        if (round.phase() == Phase::passing && round.has(rank)) round.have(rank);
        break;
      }
      case 2: {
        const int rank = static_cast<int>(in.byte());
        if (round.has(rank)) round.leave(rank);
        break;
      }
      default:
        if (in.byte() < 16) round.expire("");
    }
    require(round.size() >= 0 && round.size() <= protocol::kMaxRanks,
            "there are so many ranks at most");
    if (round.failure()) {
      require(*round.failure()->what() != 0, "a failure says why");
    } else if (round.phase() == Phase::passing) {
      const auto roster = Roster::from(round.roster(), round.size());
      require(roster.has_value() && roster->size() == round.size(), "the roster has all cards");
    }
  }
}

std::vector<std::string> seeds() {
  const auto hello = [](int rank, int size, std::string_view card) {
    protocol::Hello h;
    h.rank = rank;
    h.size = size;
    h.patience_ms = 1000;
    h.listens = protocol::endpoint_of(*parse_address("127.0.0.1", 4711));
    return std::string(1, '\0') + text_of_bytes(h) + static_cast<char>(card.size()) +
           std::string(card);
  };
  const std::string both = hello(1, 2, "one") + hello(0, 2, "zero");
  return {both + std::string("\1\0\1\1", 4), both + std::string("\1\0\3\0", 4),
          hello(0, 3, "") + hello(0, 3, "x"), hello(0, 1, "alone") + "\1"};
}

const Registered target({"rendezvous_round", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::rendezvous_round
