#include "tests/comm/random_calls.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

namespace tutti::test {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 18;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSlack = 64;  // bytes before a buffer and after it, which nobody may touch
constexpr auto kUntouched = std::byte{0xA5};

/// Element i of what rank `rank` puts into a call.
std::uint64_t value(std::uint64_t call, std::size_t rank, std::size_t i) {
  return call * 0x9E3779B97F4A7C15U + rank * ((std::size_t{1} << 20) + 37) + i;
}

std::uint64_t load(const std::byte* at, std::size_t width) {
  std::uint64_t v = 0;
  std::memcpy(&v, at, width);  // little endian
  return v;
}
std::uint64_t cut(std::uint64_t v, std::size_t width) {
  return width == 8 ? v : v & ((std::uint64_t{1} << 8 * width) - 1);
}

}  // namespace

// --- memory ---

Block::Block(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  switch (kind) {
    case Kind::plain:
      plain_.resize(bytes);
      data_ = plain_.data();
      break;
    case Kind::window:
      data_ = static_cast<std::byte*>(allocate(bytes));
      break;
    case Kind::container:
      container_.resize(bytes);
      data_ = container_.data();
      break;
    case Kind::registered:
      bytes_ = (bytes + kPage - 1) / kPage * kPage;  // a window to the last byte
      data_ = static_cast<std::byte*>(
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      if (data_ == MAP_FAILED) throw std::bad_alloc();
      register_memory(data_, bytes_);
  }
}

Block::~Block() {
  if (kind_ == Kind::window) deallocate(data_);
  if (kind_ == Kind::registered) {
    unregister_memory(data_);
    munmap(data_, bytes_);
  }
}

std::unique_ptr<Block> RandomCalls::take(std::size_t bytes, bool all_windows) {
  using Kind = Block::Kind;
  Kind kind = Kind::plain;
  if (memory_ == MemoryUse::windows) {
    kind = Kind::window;
  } else if (memory_ == MemoryUse::registered) {
    kind = Kind::registered;
  } else if (memory_ == MemoryUse::kept) {
    kind = all_windows || own_chance(2) ? Kind::window : Kind::plain;
  } else {
    const unsigned first = all_windows ? 1 : 0;
    kind = static_cast<Kind>(first + own_() % (4 - first));
  }
  if (memory_ == MemoryUse::kept) bytes = std::max(bytes, 2 * kMostBytes + 2 * kSlack);
  const auto fits = [&](const auto& block) {
    return block->kind() == kind && block->bytes() >= bytes;
  };
  const auto found = std::find_if(kept_.begin(), kept_.end(), fits);
  if (found == kept_.end()) return std::make_unique<Block>(kind, bytes);
  std::unique_ptr<Block> block = std::move(*found);
  kept_.erase(found);
  return block;
}

void RandomCalls::give_back(std::unique_ptr<Block> block) {
  if (block == nullptr) return;
  if (memory_ == MemoryUse::kept || (memory_ == MemoryUse::any && !own_chance(4))) {
    kept_.push_back(std::move(block));
  }
  if (memory_ != MemoryUse::kept && kept_.size() > 12) kept_.erase(kept_.begin());
}

// --- a call and its result ---

struct RandomCalls::Prepared {
  Team* team = nullptr;
  Call call;
  std::uint64_t id = 0;
  std::vector<std::size_t> in_counts, out_counts;
  std::unique_ptr<Block> in, out;  // in place: no input of its own
  std::size_t width = 0;           // bytes of an element
  std::size_t results = 0;         // elements
  std::function<std::uint64_t(std::size_t)> expected;
};

std::unique_ptr<RandomCalls::Prepared> RandomCalls::prepare(Team& team, Collective collective,
                                                            std::uint32_t draw) {
  Random random(draw);
  auto prepared = std::make_unique<Prepared>();
  Prepared& p = *prepared;
  const auto n = static_cast<std::size_t>(team.comm.size());
  const auto me = static_cast<std::size_t>(team.comm.rank());
  const std::uint64_t id = p.id = (std::uint64_t{draw} << 8) + team.salt;
  constexpr std::array kTypes{DataType::uint32, DataType::uint8, DataType::uint64};
  constexpr std::array<std::size_t, 3> kWidths{4, 1, 8};
  const std::size_t type = random() % 3;
  const std::size_t width = p.width = kWidths[type];
  // All of a buffer is at most kMostBytes; small ones are the most.
  const std::size_t most = kMostBytes / width / n;
  const auto draw_count = [&] {
    return random() % 16 == 0 ? 0 : std::min(most, std::size_t{1} << random() % 17) - random() % 2;
  };
  const std::size_t count = draw_count();
  const auto root = static_cast<std::size_t>(random() % n);
  const bool in_place = random() % 4 == 0;
  const bool all_windows = random() % 4 != 0;
  constexpr std::array kOperators{ReduceKind::sum, ReduceKind::sum, ReduceKind::min,
                                  ReduceKind::max};
  const ReduceKind op = kOperators[random() % kOperators.size()];
  const auto reduced = [id, n, width, op](std::size_t i) {
    std::uint64_t all = cut(value(id, 0, i), width);
    for (std::size_t r = 1; r < n; ++r) {
      const std::uint64_t v = cut(value(id, r, i), width);
      all = op == ReduceKind::sum   ? cut(all + v, width)
            : op == ReduceKind::min ? std::min(all, v)
                                    : std::max(all, v);
    }
    return all;
  };
  // What each rank sends to each, for v-variants.
  std::vector<std::size_t> counts;
  for (std::size_t k = 0; k < n * n; ++k) counts.push_back(draw_count() / n);
  const auto sum = [](const std::vector<std::size_t>& v, std::size_t end) {
    std::size_t all = 0;
    for (std::size_t k = 0; k < end; ++k) all += v[k];
    return all;
  };

  std::size_t inputs = count;
  std::size_t place = 0;  // of the input in the output, in place
  bool can_be_in_place = true;
  p.results = count;
  switch (collective) {
    case Collective::all_reduce:
      p.expected = reduced;
      break;
    case Collective::all_gather:
      p.results = n * count;
      place = me * count;
      p.expected = [=](std::size_t i) { return value(id, i / count, i % count); };
      break;
    case Collective::reduce_scatter:
      inputs = n * count;
      can_be_in_place = false;
      p.expected = [=](std::size_t i) { return reduced(me * count + i); };
      break;
    case Collective::broadcast:
      p.expected = [=](std::size_t i) { return value(id, root, i); };
      break;
    case Collective::reduce:
      if (me != root) p.results = 0;
      can_be_in_place = me == root;
      p.expected = reduced;
      break;
    case Collective::gather:
      p.results = me == root ? n * count : 0;
      place = me * count;
      can_be_in_place = me == root;
      p.expected = [=](std::size_t i) { return value(id, i / count, i % count); };
      break;
    case Collective::scatter:
      inputs = me == root ? n * count : 0;
      can_be_in_place = false;
      p.expected = [=](std::size_t i) { return value(id, root, me * count + i); };
      break;
    case Collective::all_to_all:
      inputs = p.results = n * count;
      can_be_in_place = false;
      p.expected = [=](std::size_t i) { return value(id, i / count, me * count + i % count); };
      break;
    case Collective::all_gather_v:
      counts.resize(n);
      p.out_counts = counts;
      inputs = counts[me];
      place = sum(counts, me);
      p.results = sum(counts, n);
      p.expected = [counts](std::size_t) { return std::uint64_t{0}; };  // below
      break;
    case Collective::reduce_scatter_v:
      counts.resize(n);
      p.in_counts = counts;
      inputs = sum(counts, n);
      p.results = counts[me];
      can_be_in_place = false;
      p.expected = [reduced, before = sum(counts, me)](std::size_t i) {
        return reduced(before + i);
      };
      break;
    case Collective::all_to_all_v:
      for (std::size_t r = 0; r < n; ++r) {
        p.in_counts.push_back(counts[me * n + r]);
        p.out_counts.push_back(counts[r * n + me]);
      }
      inputs = sum(p.in_counts, n);
      p.results = sum(p.out_counts, n);
      can_be_in_place = false;
      break;
    default:  // barrier
      inputs = p.results = 0;
      can_be_in_place = false;
  }
  if (collective == Collective::all_gather_v || collective == Collective::all_to_all_v) {
    // Rank by rank, what each has put first for those before us.
    std::vector<std::uint64_t> all;
    for (std::size_t r = 0; r < n; ++r) {
      std::size_t begin = 0;
      if (collective == Collective::all_to_all_v) {
        for (std::size_t k = 0; k < me; ++k) begin += counts[r * n + k];
      }
      for (std::size_t i = 0; i < p.out_counts[r]; ++i) all.push_back(value(id, r, begin + i));
    }
    p.expected = [all = std::move(all)](std::size_t i) { return all[i]; };
  }

  const std::size_t shift = kSlack + width * (own_() % 16);
  const auto space = [&](std::size_t elements) {
    return elements * width + 2 * kSlack + 16 * width;
  };
  const bool same_place = in_place && can_be_in_place;
  p.out = take(space(std::max(p.results, same_place ? place + inputs : 0)), all_windows);
  std::memset(p.out->data(), static_cast<int>(kUntouched), space(p.results));
  std::byte* const out = p.out->data() + shift;
  std::byte* in = out + place * width;
  if (!same_place) {
    p.in = take(space(inputs), all_windows);
    in = p.in->data() + kSlack + width * (own_() % 16);
  }
  const bool sends = collective != Collective::broadcast || me == root;
  for (std::size_t i = 0; sends && i < inputs; ++i) {
    const std::uint64_t v = value(id, me, i);
    std::memcpy(in + i * width, &v, width);
  }
  p.team = &team;
  p.call = {.collective = collective,
            .in = in,
            .out = out,
            .count = count,
            .type = kTypes[type],
            .op = {op},
            .root = static_cast<int>(root),
            .in_counts = p.in_counts,
            .out_counts = p.out_counts};
  if (is_v(collective)) p.call.count = 0;
  if (collective == Collective::barrier) p.call = {.collective = Collective::barrier};
  return prepared;
}

std::unique_ptr<RandomCalls::Prepared> RandomCalls::prepare_any(Team& team) {
  constexpr std::array kCollectives{
      Collective::all_reduce, Collective::all_gather,       Collective::reduce_scatter,
      Collective::broadcast,  Collective::reduce,           Collective::gather,
      Collective::scatter,    Collective::all_to_all,       Collective::all_gather_v,
      Collective::barrier,    Collective::reduce_scatter_v, Collective::all_to_all_v};
  const Collective collective = kCollectives[same_() % kCollectives.size()];
  const auto draw = static_cast<std::uint32_t>(same_());
  if (!team.comm) return nullptr;
  return prepare(team, collective, draw);
}

void RandomCalls::check(const Prepared& p) const {
  if (p.call.collective == Collective::barrier) return;
  const auto* const out = static_cast<const std::byte*>(p.call.out);
  const auto fail = [&](std::size_t i, std::uint64_t is, std::uint64_t should) {
    throw std::runtime_error(
        fmt::format("step {}: {} of rank {} of {} (count {}, {} bytes each, root {}): element {} "
                    "of {} is {:#x} "
                    "instead of {:#x}",
                    steps_, name(p.call.collective), p.team->comm.rank(), p.team->comm.size(),
                    p.call.count, p.width, p.call.root, i, p.results, is, should));
  };
  for (std::size_t i = 0; i < p.results; ++i) {
    const std::uint64_t is = load(out + i * p.width, p.width);
    const std::uint64_t should = cut(p.expected(i), p.width);
    if (is != should) fail(i, is, should);
  }
  // What lies before and after it is as it was.
  for (std::size_t i = 0; i < kSlack; ++i) {
    const std::byte before = out[-1 - static_cast<std::ptrdiff_t>(i)];
    const std::byte after = out[p.results * p.width + i];
    if (before != kUntouched) fail(SIZE_MAX, load(&before, 1), load(&kUntouched, 1));
    if (after != kUntouched) fail(p.results, load(&after, 1), load(&kUntouched, 1));
  }
}

// --- steps ---

RandomCalls::RandomCalls(Communicator& comm, unsigned seed, Action action, MemoryUse memory)
    : comm_(comm),
      action_(action),
      memory_(memory),
      same_(seed),
      own_(seed * 31 + static_cast<unsigned>(comm.rank())) {
  for (int r = 0; r < comm.size(); ++r) teams_[0].ranks.push_back(r);
  // Groups and started calls get some others to work with from the start.
  if (action == Action::group || action == Action::start) {
    for (int k = 0; k < 3; ++k) act(Action::split);
  }
}

template <class Body>
void RandomCalls::on(const Team& team, Body&& body) const {
  try {
    body();
  } catch (const Error& e) {
    const bool known = e.rank() >= 0 && static_cast<std::size_t>(e.rank()) < team.ranks.size();
    throw Error(e.code(), e.what(), known ? team.ranks[static_cast<std::size_t>(e.rank())] : -1);
  }
}

RandomCalls::Team& RandomCalls::draw_team() {
  const std::size_t k = same_() % (2 * teams_.size());
  return teams_[k < teams_.size() ? k : 0];
}

void RandomCalls::step() {
  ++steps_;
  if (own_chance(64)) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 300));
  if (action_ != Action::mixed) return act(action_);
  switch (same_() % 16) {
    case 0:
      return act(same_() % 4 == 0 ? Action::shrink : Action::split);
    case 1:
    case 2:
      return act(Action::start);
    case 3:
    case 4:
      return act(Action::group);
    case 5:
      return act(Action::message);
    default:
      return act(Action::call);
  }
}

void RandomCalls::stop() {
  for (Team& team : std::span(teams_).subspan(1)) {
    if (team.comm) team.comm.abort("the test stops here");
  }
}

void RandomCalls::act(Action action) {
  // The first team uses the caller's communicator.
  std::swap(teams_[0].comm, comm_);
  struct Back {
    RandomCalls& r;
    ~Back() { std::swap(r.teams_[0].comm, r.comm_); }
  } back{*this};
  switch (action) {
    case Action::message:
      return message();
    case Action::group:
      return group_of_calls();
    case Action::start:
      return start();
    case Action::split:
      return split();
    case Action::shrink:
      return shrink();
    default:
      return call();
  }
}

void RandomCalls::call() {
  Team& team = draw_team();
  const auto p = prepare_any(team);
  if (p == nullptr) return;
  on(team, [&] { team.comm.run(p->call); });
  check(*p);
  give_back(std::move(p->in));
  give_back(std::move(p->out));
}

void RandomCalls::message() {
  Team& team = draw_team();
  const std::uint32_t from = same_(), to = same_(), draw = same_();
  if (!team.comm || team.comm.size() < 2) return;
  const auto n = static_cast<unsigned>(team.comm.size());
  const auto source = static_cast<int>(from % n);
  const auto target = static_cast<int>((from + 1 + to % (n - 1)) % n);
  const int me = team.comm.rank();
  if (me != source && me != target) return;
  // As a broadcast, of which only two ranks know.
  const auto p = prepare(team, Collective::broadcast, draw);
  const auto count = p->call.count;
  auto* const out = static_cast<std::byte*>(p->call.out);
  on(team, [&] {
    if (me == target) return team.comm.recv(out, count, p->call.type, source);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t v = value(p->id, static_cast<std::size_t>(source), i);
      std::memcpy(out + i * p->width, &v, p->width);
    }
    team.comm.send(out, count, p->call.type, target);
  });
  p->expected = [id = p->id, source](std::size_t i) {
    return value(id, static_cast<std::size_t>(source), i);
  };
  check(*p);
  give_back(std::move(p->in));
  give_back(std::move(p->out));
}

void RandomCalls::group_of_calls() {
  std::vector<std::unique_ptr<Prepared>> all;
  const std::size_t calls = 1 + same_() % 4;
  std::vector<Team*> teams;
  for (std::size_t k = 0; k < calls; ++k) {
    Team& team = draw_team();
    auto p = prepare_any(team);
    if (p != nullptr) all.push_back(std::move(p));
  }
  // And a ring of messages.
  Team& ring = draw_team();
  const std::uint32_t draw = same_();
  const auto n = ring.comm ? static_cast<std::size_t>(ring.comm.size()) : 1;
  std::unique_ptr<Prepared> message;
  if (ring.comm) message = prepare(ring, Collective::all_reduce, draw);
  bool one_team = true;
  for (const auto& p : all) one_team = one_team && p->team == &ring;
  std::unique_ptr<Block> sent;
  const auto body = [&] {
    group([&] {
      if (message) {
        const auto me = static_cast<std::size_t>(ring.comm.rank());
        const std::size_t previous = (me + n - 1) % n;
        const std::size_t bytes = message->call.count * message->width;
        sent = take(bytes + 1, true);
        for (std::size_t i = 0; i < message->call.count; ++i) {
          const std::uint64_t v = value(message->id, me, i);
          std::memcpy(sent->data() + i * message->width, &v, message->width);
        }
        ring.comm.recv(message->call.out, message->call.count, message->call.type,
                       static_cast<int>(previous));
        ring.comm.send(sent->data(), message->call.count, message->call.type,
                       static_cast<int>((me + 1) % n));
        message->expected = [id = message->id, previous](std::size_t i) {
          return value(id, previous, i);
        };
      }
      for (const auto& p : all) p->team->comm.run(p->call);
    });
  };
  // Of several communicators, nobody says which one has failed.
  const Team nobody;
  on(one_team ? ring : nobody, body);
  if (message) all.push_back(std::move(message));
  for (const auto& p : all) {
    check(*p);
    give_back(std::move(p->in));
    give_back(std::move(p->out));
  }
  give_back(std::move(sent));
}

void RandomCalls::start() {
  struct Started {
    std::unique_ptr<Prepared> prepared;
    Future future;
  };
  // By team, for the calls of one keep their order; which team is first is each rank's own.
  std::array<std::vector<Started>, 4> all;
  const std::size_t calls = 1 + same_() % 6;
  for (std::size_t k = 0; k < calls; ++k) {
    Team& team = draw_team();
    auto p = prepare_any(team);
    const auto at = static_cast<std::size_t>(&team - teams_.data());
    if (p != nullptr) all[at].push_back({std::move(p), {}});
  }
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  std::shuffle(order.begin(), order.end(), own_);
  // What has been started uses its memory until it is over, also when another one fails.
  struct WaitForAll {
    RandomCalls& calls;
    std::array<std::vector<Started>, 4>& all;
    ~WaitForAll() {
      if (std::uncaught_exceptions() > 0) calls.stop();
      for (auto& team : all) {
        for (Started& s : team) {
          try {
            s.future.wait();
          } catch (const Error&) {  // it is over
          }
        }
      }
    }
  } wait_for_all{*this, all};
  for (const std::size_t k : order) {
    for (Started& s : all[k]) {
      on(teams_[k], [&] { s.future = teams_[k].comm.start(s.prepared->call); });
    }
  }
  // Meanwhile a blocking call, of a team that has started something or not.
  if (same_() % 2 == 0) call();
  std::shuffle(order.begin(), order.end(), own_);
  for (const std::size_t k : order) {
    for (Started& s : all[k]) {
      on(teams_[k], [&] { s.future.wait(); });
      check(*s.prepared);
      give_back(std::move(s.prepared->in));
      give_back(std::move(s.prepared->out));
    }
  }
}

void RandomCalls::split() {
  const std::size_t slot = 1 + same_() % (teams_.size() - 1);
  Team& parent = teams_[0];
  Team made;
  // Two colours, and perhaps some that stay out; in the ranks' order or the other way round.
  const std::uint32_t draw = same_();
  const auto color = [&](std::size_t r) {
    const std::uint32_t bits = draw >> 2 * r % 30 & 3;
    return bits == 3 ? -1 : static_cast<int>(bits % 2);
  };
  const bool reversed = same_() % 2 == 0;
  made.salt = same_() % 64 * 4;
  const auto me = static_cast<std::size_t>(parent.comm.rank());
  const int mine = color(me);
  for (std::size_t r = 0; r < parent.ranks.size(); ++r) {
    if (mine >= 0 && color(r) == mine) made.ranks.push_back(static_cast<int>(r));
  }
  if (reversed) std::reverse(made.ranks.begin(), made.ranks.end());
  made.salt += static_cast<std::uint64_t>(mine + 1);
  if (own_chance(2)) teams_[slot] = {};  // it is left before the new one is made, or after
  on(parent, [&] {
    made.comm = parent.comm.split(mine, reversed ? -parent.comm.rank() : parent.comm.rank());
  });
  const auto at = std::find(made.ranks.begin(), made.ranks.end(), parent.comm.rank());
  if (made.comm && made.comm.rank() != at - made.ranks.begin()) {
    throw std::runtime_error("split() has numbered the ranks in another way");
  }
  teams_[slot] = std::move(made);
}

// Of all ranks: who is left out may die, and be left out then by those who go on.
void RandomCalls::shrink() {
  const std::size_t slot = 1 + same_() % (teams_.size() - 1);
  Team& parent = teams_[0];
  teams_[slot] = {};
  Team made;
  made.ranks = parent.ranks;
  on(parent, [&] { made.comm = parent.comm.shrink({}); });
  const auto p = prepare(made, Collective::all_reduce, static_cast<std::uint32_t>(steps_));
  on(made, [&] { made.comm.run(p->call); });
  check(*p);
  give_back(std::move(p->in));
  give_back(std::move(p->out));
  teams_[slot] = std::move(made);
}

unsigned stress_seed() {
  const char* const text = std::getenv("TUTTI_TEST_SEED");
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 1234;
}

std::uint64_t make_random_calls(Communicator& comm, unsigned seed, MemoryUse memory,
                                double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  RandomCalls calls(comm, seed, Action::mixed, memory);
  for (std::uint64_t steps = 0;; ++steps) {
    if (steps % 32 == 31) {
      // Rank 0 decides when to stop, so that all stop after the same step.
      std::uint32_t go = Clock::now() < end ? 1 : 0;
      comm.broadcast(&go, &go, 1, DataType::uint32, 0);
      if (go == 0) return steps;
    }
    calls.step();
  }
}

}  // namespace tutti::test
