// A network that misbehaves, under the real sockets of this process: whatever is linked with
// chaos_sockets.cpp sends and receives over TCP in pieces of random sizes, at random times, so
// that connections overtake each other; and one of them may break, lose its voice or lose a bit at
// a random byte. All of it is drawn from a seed.
//
// A program that says nothing itself is told by its environment: TUTTI_TEST_CHAOS is the seed.
#pragma once

#include <cstdint>

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
};

/// For all that is sent and received until another one begins.
void begin_chaos(const Chaos& chaos);
/// Whether it has struck.
bool end_chaos();

}  // namespace tutti::test
