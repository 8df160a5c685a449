// A network that misbehaves, under the real sockets of this process: whatever is linked with
// chaos_sockets.cpp sends and receives over TCP in pieces of random sizes, at random times, so
// that connections overtake each other; and one of them may break, lose its voice or lose a bit at
// a random byte. Dials may come to nothing, as behind a firewall. All of it is drawn from a seed.
//
// A program that says nothing itself is told by its environment: TUTTI_TEST_CHAOS is the seed.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::test {

struct Chaos {
  unsigned seed = 1;
  /// What happens to the connection that carries this byte, of all that are received over TCP. 0:
  /// nothing ever.
  std::uint64_t strikes_at = 0;
  enum class Strike : std::uint8_t {
    hang_up,  // both ends read an end of file
    reset,    // both ends get ECONNRESET
    flip,     // one bit is another one
  } strike = Strike::hang_up;

  // Of what a rank dials to reach another host. Of 16 dials, so many are
  unsigned turned_away = 0;  // as by a host where nobody listens
  unsigned unanswered = 0;   // as by a host that is not there
  unsigned struck = 0;       // in one way or another, before the acceptor has named itself
  /// Nobody gets through to these ports: dials are turned away, or else not answered.
  std::vector<std::uint16_t> closed_ports{};
  bool turns_away = true;
};

/// For all that is sent and received until another one begins.
void begin_chaos(const Chaos& chaos);
/// Whether it has struck.
bool end_chaos();

}  // namespace tutti::test
