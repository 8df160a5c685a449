// A wire over RDMA: messages that do not go through the rings.
#include <algorithm>
#include <cstddef>

#include "transport/verbs/verbs_ring.h"

namespace tutti {
namespace {

// What is lent is waited for until the peer's device has it, so that a stream of shorter ones, each
// a call, would stand still in between; they are copied sooner.
constexpr std::size_t kLeastLent = std::size_t{256} << 10;

}  // namespace

bool VerbsWire::reaches(const std::byte* memory, std::size_t bytes) {
  return bytes >= kLeastLent && windows_->keys(memory, bytes).has_value();
}

// --- Lent memory ---------------------------------------------------------------------------------

void VerbsWire::end_loans() {
  while (!lent_.empty() && lent_.front().request <= channel_.completed()) {
    lent_.front().link->sent(lent_.front().number, lent_.front().bytes);
    lent_.pop_front();
    ++came_;
  }
}

bool VerbsWire::keep_passed(OutLink& link, const std::byte* begin, const std::byte* end) {
  return std::ranges::none_of(lent_, [&](const Lent& l) {
    return l.link == &link && l.from < end && begin < l.from + l.bytes;
  });
}

// --- Expected messages ---------------------------------------------------------------------------

void VerbsWire::tell_expected(InLink& link, std::span<const InLink::Expected> messages) {
  Registration& ring = Registration::of(link.memory());
  if (!ring.open) return;
  Said said;
  said.kind = Said::expects;
  said.link = link.number();
  std::size_t count = 0;
  const auto tell = [&] {
    if (count > 0) said_.push_back(said);
    said.landings = {};
    count = 0;
  };
  for (const InLink::Expected& m : messages) {
    const auto keys = windows_->keys(m.to, m.bytes);
    // What has come since, lies in its slot.
    if (!keys || m.number <= ring.came) continue;
    said.landings[count++] = {
        m.number, reinterpret_cast<std::uintptr_t>(m.to), keys->remote, m.tag, m.bytes, 0};
    ring.told_up_to = m.number;
    if (count == said.landings.size()) tell();
  }
  tell();
  push();
}

bool VerbsWire::stop_landing(InLink& link) {
  Registration& ring = Registration::of(link.memory());
  // What has come, lands no more.
  if (ring.told_up_to <= ring.came) return true;
  if (!ring.takes_back) {
    ring.takes_back = true;
    Said said;
    said.kind = Said::forget;
    said.link = link.number();
    said_.push_back(said);
    push();
  }
  return false;
}

}  // namespace tutti
