// What ranks of a job tell each other between hosts, beside their data: a rank's state, failures,
// the card that it hands in, and the addresses in it. Each is taken or refused as a whole.
#include <array>
#include <memory>

#include "comm/session_card.h"
#include "tests/fuzz/target.h"
#include "transport/host/control_copy.h"
#include "transport/host/failure.h"

namespace tutti::fuzz::notes {
namespace {

void cards(Input in) {
  std::vector<SessionCard> all(1 + in.byte() % 3);
  for (SessionCard& card : all) {
    // The fields as they are, but where the input says another byte.
    card.host_peers.host = {1, 2};
    card.slots = 8;
    card.slot_bytes = 65536;
    card.tile_bytes = 1 << 20;
    card.machine = default_machine();
    card.network = NetworkAddress::of(*parse_address("127.0.0.1", 4711));
    const auto bytes = std::as_writable_bytes(std::span(&card, 1));
    for (unsigned changes = in.byte() % 8; changes > 0; --changes) {
      bytes[in.value<std::uint16_t>() % bytes.size()] = static_cast<std::byte>(in.byte());
    }
  }
  accepts(ErrorCode::mismatch, [&] { agree_on_invariance(all); });
  accepts(ErrorCode::invalid_usage, [&] { agree_on_users(all); });
  accepts(ErrorCode::mismatch, [&] { agreed_protection(all); });
  accepts(ErrorCode::mismatch, [&] {
    const Geometry g = geometry_of(all, 0);
    require(g.shape.slots >= 2 && g.shape.slot_bytes > 0, "links have slots");
    require(g.cores >= 1 && g.hosts.count() >= 1, "there are hosts and cores");
  });
  for (const SessionCard& card : all) {
    const auto address = card.network.get();
    if (address) require(!to_string(*address).empty(), "an address has a text");
    if (address)
      further_ways(all[0].network.further, *parse_address("127.0.0.1", 1), card.network.further,
                   *address);
    try {
      choose_wire(all[0].network.wires, 0, card.network.wires, 1);
      check_offer(card.network.wires, 1);
    } catch (const Error& error) {
      require(*error.what() != 0, "an error says something");
    }
  }
}

void state(std::string_view text) {
  auto block = std::make_unique<ControlBlock>();
  if (!control_from_bytes(bytes_in(text), *block)) {
    const auto nothing = std::make_unique<ControlBlock>();
    require(block->progress.load() == nothing->progress.load(), "what is refused changes nothing");
    return;
  }
  auto again = std::make_unique<ControlBlock>();
  require(control_from_bytes(control_to_bytes(*block), *again),
          "a state is written and read again");
  require(again->progress.load() == block->progress.load(), "and the same");
}

void run(std::string_view input) {
  Input in(input);
  switch (in.byte() % 3) {
    case 0:
      return cards(in);
    case 1:
      return state(in.rest());
    default:
      if (const auto failure = failure_from(bytes_in(in.rest()), 4)) {
        require(failure->rank >= -1 && failure->rank < 4, "a culprit is a rank");
        require(name(failure->code) != "", "a failure has a code");
      }
  }
}

std::vector<std::string> seeds() {
  auto block = std::make_unique<ControlBlock>();
  block->progress.store(7);
  block->waiting.say(3, "waits for rank 1");
  block->announced.say(4, "all_reduce");
  return {
      std::string(40, '\0'), std::string("\0\2\3abcdefghi", 12),
      "\1" + text_of_bytes(control_to_bytes(*block)),
      "\1" + std::string(16, '\0') + text_of_bytes(INT64_MIN) + std::string(64, '\0'),  // an age
      "\2" + text_of_bytes(to_bytes(Failure{ErrorCode::peer_lost, 2, "rank 2 has died", true}))};
}

const Registered target({"notes", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::notes
