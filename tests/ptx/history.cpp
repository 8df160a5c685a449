// Strong words: their histories, and what a load may read of them.
#include <algorithm>

#include "tests/ptx/memory.h"

namespace tutti::ptx {
namespace {

constexpr std::uint32_t kNobody = ~std::uint32_t{0};
constexpr std::size_t kMostMessages = 6;

std::uint64_t real(std::uint64_t address) {
  return __atomic_load_n(reinterpret_cast<std::uint64_t*>(address), __ATOMIC_ACQUIRE);
}
void set_real(std::uint64_t address, std::uint64_t value) {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(address), value, __ATOMIC_RELEASE);
}

bool is_release(Order o) {
  return o == Order::release || o == Order::both || o == Order::sequential;
}
bool is_acquire(Order o) {
  return o == Order::acquire || o == Order::both || o == Order::sequential;
}

}  // namespace

// --- Histories -----------------------------------------------------------------------------------

Memory::History* Memory::history(std::uint64_t address) {
  const std::uint32_t h = granule(address).history;
  if (h == 0) return nullptr;
  History& found = histories_[h];
  const std::uint64_t now = real(address);
  if (now != found.messages.back().value) {
    // The host wrote it, or a device's copy did; what it had read there it passes on.
    Message m;
    m.value = now;
    m.moment.thread = kNobody;
    m.view = found.messages.back().view;
    append(address, found, std::move(m));
  }
  return &found;
}

Memory::History& Memory::make_history(std::uint64_t address) {
  if (History* const found = history(address)) return *found;
  std::uint32_t h = 0;
  if (free_.empty()) {
    h = static_cast<std::uint32_t>(histories_.size());
    histories_.emplace_back();
  } else {
    h = free_.back();
    free_.pop_back();
  }
  granule(address).history = h;
  Message before;
  before.value = real(address);
  before.moment.thread = kNobody;
  histories_[h].messages.push_back(std::move(before));
  return histories_[h];
}

void Memory::forget(Granule& g) {
  if (g.history == 0) return;
  histories_[g.history].messages.clear();
  free_.push_back(g.history);
  g.history = 0;
}

bool Memory::knows(const ThreadView& t, const Message& m) const {
  if (m.moment.thread == kNobody || m.moment.thread == t.number) return true;
  return t.known().knows(m.moment);
}

std::uint64_t Memory::remembered(const ThreadView& t, std::uint64_t address) {
  const ThreadView::Read& r = t.reads[address / 8 % 8];
  return r.address == address ? r.number : 0;
}

void Memory::remember(ThreadView& t, std::uint64_t address, std::uint64_t number) {
  ThreadView::Read& r = t.reads[address / 8 % 8];
  if (r.address == address) {
    r.number = std::max(r.number, number);
    return;
  }
  // Another word's place: what it was must stay seen.
  t.seen = std::max(t.seen, r.number);
  r = {address, number};
}

/// The number of the oldest write that the thread may read.
std::uint64_t Memory::lowest(const ThreadView& t, const History& h, std::uint64_t address) const {
  const std::uint64_t seen = std::max({t.seen, t.known().seen, remembered(t, address)});
  for (std::size_t i = h.messages.size(); i-- > 1;) {
    const Message& m = h.messages[i];
    if (m.number <= seen || knows(t, m)) return m.number;
  }
  return h.messages.front().number;
}

std::uint64_t Memory::pick(const ThreadView& t, const History& h, std::uint64_t address) {
  const std::uint64_t newest = h.messages.back().number;
  if (!weak || random_() % 4 != 0) return newest;
  const std::uint64_t low = lowest(t, h, address);
  std::size_t first = h.messages.size() - 1;
  while (first > 0 && h.messages[first].number > low) --first;
  const auto choices = static_cast<std::uint32_t>(h.messages.size() - first);
  return h.messages[first + random_.below(choices)].number;
}

/// Whether the access at hand and the write are in each other's scopes.
bool Memory::synchronises(const ThreadView& t, const Message& m) const {
  if (m.moment.thread == kNobody) return manner.scope == Scope::system;
  const std::uint32_t there = m.moment.block();
  const std::uint32_t here = t.block->index;
  const auto reaches = [&](Scope s) {
    return s == Scope::system || (s == Scope::gpu && gpus[there] == gpus[here]) ||
           (s == Scope::block && there == here);
  };
  return reaches(m.scope) && reaches(manner.scope);
}

Clock& Memory::own(ThreadView& t) {
  if (!t.own) t.own = std::make_unique<Clock>(t.block->known);
  return *t.own;
}

void Memory::acquire(ThreadView& t, const Message& m) {
  if (!m.view || m.moment.thread == t.number || !synchronises(t, m)) return;
  if (is_acquire(manner.order)) {
    own(t).join(*m.view);
  } else if (has_fences) {
    t.pending.push_back(m);
  }
}

std::uint64_t Memory::read_up_to(ThreadView& t, std::uint64_t address, std::uint64_t number) {
  History* const h = history(address);
  if (h == nullptr) return real(address);
  std::size_t i = h->messages.size() - 1;
  while (i > 0 && h->messages[i].number > number) --i;
  const Message& m = h->messages[i];
  remember(t, address, m.number);
  acquire(t, m);
  return m.value;
}

// --- Strong accesses -----------------------------------------------------------------------------

void Memory::load(ThreadView& t, const std::uint64_t* addresses, std::uint32_t count, bool whole,
                  std::uint64_t* values) {
  std::uint64_t chosen[4] = {};
  std::uint64_t low = 0;
  region(t, addresses[0], 8 * count);
  for (std::uint32_t i = 0; i < count; ++i) {
    check(t, addresses[i], 8, false);
    if (const History* const h = history(addresses[i])) {
      chosen[i] = pick(t, *h, addresses[i]);
      low = std::max(low, lowest(t, *h, addresses[i]));
    }
  }
  const std::uint32_t leader = random_.below(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    values[i] = read_up_to(t, addresses[i], whole ? std::max(chosen[leader], low) : chosen[i]);
  }
}

void Memory::load_line(ThreadView* const* threads, const std::uint64_t* addresses,
                       std::uint64_t* values) {
  region(*threads[0], addresses[0], 128);
  std::uint64_t low = 0;
  std::uint64_t chosen = ~std::uint64_t{0};
  const std::uint32_t leader = random_.below(16);
  for (std::uint32_t i = 0; i < 16; ++i) {
    check(*threads[i / 2], addresses[i], 8, false);
    const History* const h = history(addresses[i]);
    if (h == nullptr) continue;
    if (i == leader) chosen = pick(*threads[i / 2], *h, addresses[i]);
    low = std::max(low, lowest(*threads[i / 2], *h, addresses[i]));
  }
  for (std::uint32_t i = 0; i < 16; ++i) {
    values[i] = read_up_to(*threads[i / 2], addresses[i], std::max(chosen, low));
  }
}

std::shared_ptr<const Clock> Memory::release(ThreadView& t) {
  auto view = std::make_shared<Clock>(t.known());
  view->add(t.now());
  view->seen = std::max(view->seen, t.seen);
  for (const ThreadView::Read& r : t.reads) view->seen = std::max(view->seen, r.number);
  if (++t.tick == 256) fail(t, "more releases between two barriers than are counted here");
  return view;
}

Message Memory::message(ThreadView& t, std::uint64_t value) {
  Message m;
  m.value = value;
  m.moment = t.now();
  m.scope = manner.scope;
  if (is_release(manner.order)) {
    m.view = release(t);
  } else if (t.released) {
    m.view = t.released;
    m.scope = std::min(manner.scope, t.released_to);
  }
  return m;
}

void Memory::append(std::uint64_t address, History& h, Message m) {
  if (m.number == 0) m.number = ++number_ << 16;
  if (h.messages.size() == kMostMessages) h.messages.erase(h.messages.begin());
  set_real(address, m.value);
  h.messages.push_back(std::move(m));
}

void Memory::store(ThreadView& t, std::uint64_t address, std::uint64_t value) {
  region(t, address, 8);
  check(t, address, 8, true);
  History& h = make_history(address);
  Message m = message(t, value);
  // Before writes that this thread has not seen.
  std::size_t at = h.messages.size();
  if (weak && manner.order == Order::relaxed && at < kMostMessages) {
    const std::uint64_t low = lowest(t, h, address);
    while (at > 1 && h.messages[at - 1].number > low && !h.messages[at - 1].exchanged &&
           h.messages[at - 1].number - h.messages[at - 2].number > 1 && random_() % 4 == 0) {
      --at;
    }
  }
  if (at == h.messages.size()) {
    append(address, h, std::move(m));
    remember(t, address, h.messages.back().number);
    return;
  }
  const std::uint64_t before = h.messages[at - 1].number;
  m.number = before + (h.messages[at].number - before) / 2;
  remember(t, address, m.number);
  h.messages.insert(h.messages.begin() + static_cast<std::ptrdiff_t>(at), std::move(m));
}

void Memory::store_line(ThreadView* const* threads, const std::uint64_t* addresses,
                        const std::uint64_t* values) {
  region(*threads[0], addresses[0], 128);
  const std::uint64_t number = ++number_ << 16;
  for (std::uint32_t i = 0; i < 16; ++i) {
    ThreadView& t = *threads[i / 2];
    check(t, addresses[i], 8, true);
    History& h = make_history(addresses[i]);
    Message m = message(t, values[i]);
    m.number = number;
    append(addresses[i], h, std::move(m));
    remember(t, addresses[i], number);
  }
}

std::uint64_t Memory::exchange_begin(ThreadView& t, std::uint64_t address) {
  region(t, address, 8);
  check(t, address, 8, true);
  return make_history(address).messages.back().value;
}

void Memory::exchange_end(ThreadView& t, std::uint64_t address, std::uint64_t before,
                          std::uint64_t after) {
  History& h = make_history(address);
  const Message last = h.messages.back();
  remember(t, address, last.number);
  acquire(t, last);
  // A cas that fails writes nothing.
  if (after == before && manner.order == Order::relaxed) return;
  Message m = message(t, after);
  m.exchanged = true;
  if (last.view) {
    // What was released is passed on.
    auto both = std::make_shared<Clock>(*last.view);
    if (m.view) both->join(*m.view);
    m.view = std::move(both);
  }
  append(address, h, std::move(m));
  remember(t, address, h.messages.back().number);
}

void Memory::fence(ThreadView& t) {
  for (const Message& m : t.pending) {
    if (synchronises(t, m)) own(t).join(*m.view);
  }
  t.pending.clear();
  if (manner.order == Order::sequential) own(t).join(sequential_);
  t.released = release(t);
  t.released_to = manner.scope;
  if (manner.order == Order::sequential) sequential_.join(*t.released);
}

// --- Barriers ------------------------------------------------------------------------------------

void Memory::meet(BlockView& block, std::vector<ThreadView>& threads) {
  std::uint64_t seen = 0;
  for (ThreadView& t : threads) {
    if (t.own) {
      block.known.join(*t.own);
      t.own.reset();
    }
    seen = std::max(seen, t.seen);
    for (const ThreadView::Read& r : t.reads) seen = std::max(seen, r.number);
    t.tick = 0;
  }
  block.known.seen = std::max(block.known.seen, seen);
  block.known.finish(block.index, ++block.interval);
}

}  // namespace tutti::ptx
