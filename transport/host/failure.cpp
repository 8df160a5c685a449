#include "transport/host/failure.h"

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

struct FailureHead {
  std::uint32_t code = 0;
  std::int32_t rank = -1;
  std::uint64_t cut_off = 0;
};

}  // namespace

bool FailureRecord::write(const Failure& failure) {
  std::uint32_t none = 0;
  if (!state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) return false;
  code.store(static_cast<std::uint32_t>(failure.code), std::memory_order_relaxed);
  rank.store(failure.rank, std::memory_order_relaxed);
  cut_off.store(failure.cut_off ? 1 : 0, std::memory_order_relaxed);
  const std::size_t length = std::min(failure.text.size(), text.size() - 1);
  std::memcpy(text.data(), failure.text.data(), length);
  text[length] = '\0';
  // release: a reader that sees 2 sees the words above.
  state.store(2, std::memory_order_release);
  return true;
}

std::optional<Failure> FailureRecord::read() const {
  if (state.load(std::memory_order_acquire) != 2) return std::nullopt;
  return Failure{static_cast<ErrorCode>(code.load(std::memory_order_relaxed)),
                 rank.load(std::memory_order_relaxed),
                 {text.data(), strnlen(text.data(), text.size())},
                 cut_off.load(std::memory_order_relaxed) != 0};
}

std::vector<std::byte> to_bytes(const Failure& failure) {
  const FailureHead head{static_cast<std::uint32_t>(failure.code), failure.rank,
                         failure.cut_off ? 1U : 0U};
  std::vector<std::byte> bytes(sizeof head + failure.text.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, failure.text.data(), failure.text.size());
  return bytes;
}

std::optional<Failure> failure_from(std::span<const std::byte> bytes, int ranks) {
  FailureHead head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const auto text = bytes.subspan(sizeof head);
  const bool known = head.code >= static_cast<std::uint32_t>(ErrorCode::invalid_argument) &&
                     head.code <= static_cast<std::uint32_t>(ErrorCode::internal);
  return Failure{known ? static_cast<ErrorCode>(head.code) : ErrorCode::internal,
                 head.rank >= 0 && head.rank < ranks ? head.rank : -1,
                 {reinterpret_cast<const char*>(text.data()), text.size()},
                 head.cut_off != 0};
}

}  // namespace tutti
