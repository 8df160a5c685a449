#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/window.h"
#include "core/memory.h"
#include "tests/campaign/workload.h"
#include "tests/comm/random_calls.h"

namespace tutti::campaign {
namespace {

std::uint32_t value(std::uint32_t step, int rank, std::size_t i) {
  return step * 1'000'003U + static_cast<std::uint32_t>(rank) * 7919U +
         static_cast<std::uint32_t>(i) * 13U;
}

[[noreturn]] void wrong(const char* what, std::uint32_t step, std::size_t i) {
  throw std::runtime_error(fmt::format("{}: step {}, element {}", what, step, i));
}

/// Adds up `count` numbers of every rank.
void add_up(Communicator& comm, std::vector<std::uint32_t>& x, std::uint32_t step) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(step, comm.rank(), i);
  comm.all_reduce(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::uint32_t sum = 0;
    for (int r = 0; r < comm.size(); ++r) sum += value(step, r, i);
    if (x[i] != sum) wrong("a sum", step, i);
  }
}

class Random : public Work {
 public:
  Random(Communicator& comm, unsigned seed, test::Action action, test::MemoryUse memory)
      : calls_(comm, seed, action, memory) {}
  void step() override { calls_.step(); }
  void stop() override { calls_.stop(); }

 private:
  test::RandomCalls calls_;
};

/// Long calls, so that what happens, happens in the middle of one.
class Large : public Work {
 public:
  explicit Large(Communicator& comm) : comm_(comm), x_(std::size_t{1} << 20) {}
  void step() override { add_up(comm_, x_, ++step_); }

 private:
  Communicator& comm_;
  std::vector<std::uint32_t> x_;
  std::uint32_t step_ = 0;
};

/// Short calls with pauses between them, in which a rank only asks for errors.
class Quiet : public Work {
 public:
  explicit Quiet(Communicator& comm) : comm_(comm), x_(100) {}
  void step() override {
    add_up(comm_, x_, ++step_);
    for (int k = 0; k < 20; ++k) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (const auto error = comm_.error()) throw Error(*error);
    }
  }

 private:
  Communicator& comm_;
  std::vector<std::uint32_t> x_;
  std::uint32_t step_ = 0;
};

/// Every rank puts to another one in each step; the receiver checks, and says that it has.
class Puts : public Work {
 public:
  explicit Puts(Communicator& comm) : comm_(comm) {}
  void step() override {
    const int n = comm_.size(), me = comm_.rank();
    if (!window_) window_ = comm_.window(kBlock * static_cast<std::size_t>(n));
    const int turn = n == 1 ? 0 : 1 + static_cast<int>(++step_ % static_cast<unsigned>(n - 1));
    const int to = (me + turn) % n, from = (me + n - turn) % n;
    const std::size_t count = 1 + (step_ * 2'654'435'761U) % (kBlock / sizeof(std::uint32_t));
    std::vector<std::uint32_t> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = value(step_, me, i);
    window_.put_signal(to, kBlock * static_cast<std::size_t>(me), x.data(), 4 * count);
    window_.wait_signal(from);
    const auto* got = reinterpret_cast<const std::uint32_t*>(
        window_.data() + kBlock * static_cast<std::size_t>(from));
    for (std::size_t i = 0; i < count; ++i) {
      if (got[i] != value(step_, from, i)) wrong("a put", step_, i);
    }
    window_.signal(from, 1);
    window_.wait_signal(to, 1, 1);
    if (step_ % 64 == 0) {
      window_.close();
      window_ = {};
    }
  }

 private:
  static constexpr std::size_t kBlock = 64 << 10;
  Communicator& comm_;
  Window window_;
  std::uint32_t step_ = 0;
};

/// All ranks form a communicator anew in each step.
class Reconfigure : public Work {
 public:
  explicit Reconfigure(Communicator& comm) : comm_(comm), x_(1000) {}
  void step() override {
    constexpr std::size_t kLength = 512;
    const auto n = static_cast<std::size_t>(comm_.size());
    // The newest number that this rank has used. After a failed attempt ranks may differ.
    static thread_local std::uint64_t number = 0;
    std::string own = comm_.handle(), all(kLength * n, '\0');
    own.resize(kLength);
    std::memcpy(own.data() + kLength - sizeof number, &number, sizeof number);
    comm_.all_gather(own.data(), all.data(), kLength, DataType::uint8);
    std::vector<std::string> handles;
    for (std::size_t r = 0; r < n; ++r) {
      std::uint64_t theirs = 0;
      std::memcpy(&theirs, all.data() + (r + 1) * kLength - sizeof theirs, sizeof theirs);
      number = std::max(number, theirs);
      handles.emplace_back(all.c_str() + r * kLength);
    }
    comm_ = comm_.reconfigure(handles, ++number);
    add_up(comm_, x_, ++step_);
  }

 private:
  Communicator& comm_;
  std::vector<std::uint32_t> x_;
  std::uint32_t step_ = 0;
};

}  // namespace

std::unique_ptr<Work> make_work(const std::string& kind, const std::string& memory,
                                std::uint32_t seed, Communicator& comm) {
  using test::Action, test::MemoryUse;
  static const std::map<std::string, Action> actions{
      {"call", Action::call},   {"message", Action::message}, {"group", Action::group},
      {"start", Action::start}, {"split", Action::split},     {"shrink", Action::shrink},
      {"mixed", Action::mixed}};
  static const std::map<std::string, MemoryUse> memories{{"kept", MemoryUse::kept},
                                                         {"windows", MemoryUse::windows},
                                                         {"registered", MemoryUse::registered},
                                                         {"any", MemoryUse::any}};
  if (kind == "large") return std::make_unique<Large>(comm);
  if (kind == "quiet") return std::make_unique<Quiet>(comm);
  if (kind == "puts") return std::make_unique<Puts>(comm);
  if (kind == "reconfigure") return std::make_unique<Reconfigure>(comm);
  return std::make_unique<Random>(comm, seed, actions.at(kind), memories.at(memory));
}

}  // namespace tutti::campaign
