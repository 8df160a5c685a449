// What `tutti run --elastic` and a rank tell each other, over a socket that the rank inherits: a
// message a packet. The rank makes offers; the launcher names the round that it wants, and the
// members of that round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct ElasticMessage {
  enum class Kind : std::uint8_t {
    offer,    // the rank is there for round `number`, with this handle
    wanted,   // round `number` is to come
    members,  // these handles form round `number`, in this order
  };
  Kind kind{};
  std::uint64_t number = 0;
  std::vector<std::string> handles{};
};

std::string encode(const ElasticMessage& message);
/// Nothing for text that encode() did not make.
std::optional<ElasticMessage> decode_elastic(std::string_view text);

/// The environment variable that has the number of the socket's descriptor.
constexpr const char* kElasticVariable = "TUTTI_ELASTIC";
/// The largest job, so that a list of members is one packet.
constexpr int kMostElasticRanks = 256;
constexpr std::size_t kLongestElasticMessage = std::size_t{256} << 10;

}  // namespace tutti
