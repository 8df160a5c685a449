#include "tests/comm/random_calls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/comm/random_calls_prepared.h"

namespace tutti::test {

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
  // As a broadcast that only two ranks know of.
  const auto p = prepare(team, Collective::broadcast, draw);
  const auto count = p->call.count;
  auto* const out = static_cast<std::byte*>(p->call.out);
  on(team, [&] {
    if (me == target) return team.comm.recv(out, count, p->call.type, source);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t v = value_of_call(p->id, static_cast<std::size_t>(source), i);
      std::memcpy(out + i * p->width, &v, p->width);
    }
    team.comm.send(out, count, p->call.type, target);
  });
  p->expected = [id = p->id, source](std::size_t i) {
    return value_of_call(id, static_cast<std::size_t>(source), i);
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
          const std::uint64_t v = value_of_call(message->id, me, i);
          std::memcpy(sent->data() + i * message->width, &v, message->width);
        }
        ring.comm.recv(message->call.out, message->call.count, message->call.type,
                       static_cast<int>(previous));
        ring.comm.send(sent->data(), message->call.count, message->call.type,
                       static_cast<int>((me + 1) % n));
        message->expected = [id = message->id, previous](std::size_t i) {
          return value_of_call(id, previous, i);
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

// Of all ranks: a rank that is left out may die, and the ranks that go on then leave it out.
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
