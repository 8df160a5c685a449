// The program of a simulated rank: it meets the others, makes checked calls, survives losses, and
// leaves. It is linked with the library's own objects, and knows nothing of the simulation but
// script.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "comm/window.h"
#include "core/error.h"
#include "core/host.h"
#include "tests/simulator/script.h"

extern "C" void* __dso_handle;  // NOLINT
extern "C" void __cxa_finalize(void*);

namespace tutti::simulator {
namespace {

class Rank {
 public:
  explicit Rank(const Task& task) : task_(task), members_(static_cast<std::size_t>(task.size)) {
    std::iota(members_.begin(), members_.end(), 0);
  }

  void run() {
    if (task_.by_handles) {
      while (!meet_again() || !make_steps()) {
      }
    } else {
      bool goes_on = meet();
      while (goes_on && !make_steps()) goes_on = shrink();
    }
    comm_.destroy();
    say({Outcome::Kind::left, task_.rank, 0, -1, {}, {}});
  }

 private:
  void say(const Outcome& outcome) { task_.services->say(outcome); }

  int name_of(int rank) const {
    return rank >= 0 && static_cast<std::size_t>(rank) < members_.size()
               ? members_[static_cast<std::size_t>(rank)]
               : -1;
  }

  void say_error(const Error& e) {
    say({Outcome::Kind::error,
         task_.rank,
         static_cast<int>(e.code()),
         name_of(e.rank()),
         e.what(),
         {}});
  }

  bool meet() {
    try {
      UniqueId id;
      if (task_.rank == 0) {
        id = make_unique_id(MeetingPlace::among_hosts());
        task_.services->publish("id", to_string(id));
      } else {
        const std::string text = task_.services->await("id");
        if (text.empty()) return false;
        id = unique_id_from_string(text);
      }
      comm_ = Communicator::create(id, task_.rank, task_.size);
    } catch (const Error& e) {
      say_error(e);
      return false;
    }
    say({Outcome::Kind::met, task_.rank, 0, -1, {}, members_});
    return true;
  }

  /// A meeting of those who can be there. False: it has failed.
  bool meet_again() {
    try {
      if (!comm_) comm_ = Communicator::alone();
      const int number = task_.services->enter(comm_.handle());
      const Services::Meeting meeting = task_.services->wait_for_meeting(number);
      members_ = meeting.ranks;
      comm_ = comm_.reconfigure(meeting.handles, static_cast<std::uint64_t>(number));
      agrees_ = true;
      say({Outcome::Kind::met, task_.rank, 0, -1, {}, members_});
      return true;
    } catch (const Error& e) {
      say_error(e);
      return false;
    }
  }

  /// True once all are made; false: one has failed.
  bool make_steps() {
    try {
      // After a loss some ranks may be a step further than others: they agree on the first.
      auto next = static_cast<std::uint32_t>(step_);
      if (agrees_) comm_.all_reduce(&next, &next, 1, DataType::uint32, ReduceKind::min);
      step_ = next;
      agrees_ = false;
      for (; step_ < task_.steps.size(); ++step_) {
        if (!make(task_.steps[step_])) return true;
      }
      // So no rank leaves while another one may still need it.
      comm_.barrier();
      say({Outcome::Kind::finished, task_.rank, 0, -1, {}, members_});
      return true;
    } catch (const Error& e) {
      say_error(e);
      failure_ = e;
      return false;
    }
  }

  std::uint32_t element(int rank, std::size_t i) const {
    return static_cast<std::uint32_t>((step_ + 1) * 1000003 +
                                      static_cast<std::size_t>(rank) * 10007 + i * 7);
  }

  bool check(std::uint32_t is, std::uint32_t expected, std::size_t i) {
    if (is == expected) return true;
    say({Outcome::Kind::wrong,
         task_.rank,
         0,
         -1,
         "step " + std::to_string(step_) + ", element " + std::to_string(i) + ": " +
             std::to_string(is) + " instead of " + std::to_string(expected),
         {}});
    return false;
  }

  bool make(const Step& step) {
    const std::size_t count = step.count;
    std::vector<std::uint32_t> in(count), out(count);
    for (std::size_t i = 0; i < count; ++i) in[i] = element(task_.rank, i);
    const auto sum = [&](std::size_t i) {
      std::uint32_t all = 0;
      for (const int m : members_) all += element(m, i);
      return all;
    };
    switch (step.kind) {
      case Step::Kind::all_reduce:
        comm_.all_reduce(in.data(), out.data(), count, DataType::uint32);
        break;
      case Step::Kind::started:
        comm_.start().all_reduce(in.data(), out.data(), count, DataType::uint32).wait();
        break;
      case Step::Kind::broadcast: {
        const int root = static_cast<int>(step_ % members_.size());
        comm_.broadcast(in.data(), out.data(), count, DataType::uint32, root);
        for (std::size_t i = 0; i < count; ++i) {
          if (!check(out[i], element(members_[static_cast<std::size_t>(root)], i), i)) return false;
        }
        return true;
      }
      case Step::Kind::barrier:
        comm_.barrier();
        return true;
      case Step::Kind::message_ring: {
        const int n = comm_.size(), right = (comm_.rank() + 1) % n,
                  left = (comm_.rank() + n - 1) % n;
        group([&] {
          comm_.send(in.data(), count, DataType::uint32, right);
          comm_.recv(out.data(), count, DataType::uint32, left);
        });
        for (std::size_t i = 0; i < count; ++i) {
          if (!check(out[i], element(members_[static_cast<std::size_t>(left)], i), i)) return false;
        }
        return true;
      }
      case Step::Kind::split:
        return use_part();
      case Step::Kind::window:
        return use_window();
      case Step::Kind::bad_window:
        return try_bad_window();
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!check(out[i], sum(i), i)) return false;
    }
    return true;
  }

  /// Even and odd ranks make communicators of their own, and count themselves there.
  bool use_part() {
    const int color = comm_.rank() % 2;
    Communicator part = comm_.split(color, comm_.rank());
    std::uint32_t one = 1, all = 0;
    try {
      part.all_reduce(&one, &all, 1, DataType::uint32);
    } catch (const Error& e) {  // which names a rank of the part
      throw Error(e.code(), e.what(), e.rank() < 0 ? -1 : 2 * e.rank() + color);
    }
    return check(all, static_cast<std::uint32_t>(comm_.size() + 1 - color) / 2, 0);
  }

  /// Puts a number to the right, and waits for that of the left. Before that a callback tries to
  /// wait, where it may not: it takes nothing.
  bool use_window() {
    Window window = comm_.window(64);
    const int n = comm_.size(), right = (comm_.rank() + 1) % n, left = (comm_.rank() + n - 1) % n;
    std::atomic<bool> may{false}, over{false};
    Future started = comm_.start().barrier();
    started.on_ready([&] {
      try {
        if (may) window.wait_signal(left, 1, 3);
      } catch (const Error&) {  // it is refused
      }
      over = true;
    });
    may = !over;
    while (!over) std::this_thread::sleep_for(std::chrono::microseconds(100));
    started.wait();
    comm_.barrier();
    const std::uint32_t mine = element(task_.rank, 0);
    window.put_signal(right, 0, &mine, sizeof mine, 3);
    window.wait_signal(left, 1, 3);
    std::uint32_t got = 0;
    std::memcpy(&got, window.data(), sizeof got);
    const bool is_right = check(got, element(members_[static_cast<std::size_t>(left)], 0), 0);
    window.close();
    return is_right;
  }

  /// One rank cannot open its part; so no rank has the window, and none keeps anything of it.
  bool try_bad_window() {
    // After a first time: what a window leaves to the next one is there.
    std::optional<std::vector<std::string>> before;
    for (int time = 0; time < 2; ++time) {
      if (!try_one_bad_window()) return false;
      std::vector<std::string> now = task_.services->memory_files();
      comm_.barrier();  // before another rank's next window
      if (before && now.size() > before->size()) {
        std::string names = "more files are open after a refused window:";
        for (const std::string& name : now) names += " " + name;
        names += "; before:";
        for (const std::string& name : *before) names += " " + name;
        say({Outcome::Kind::wrong, task_.rank, 0, -1, names, {}});
        return false;
      }
      before = std::move(now);
    }
    return true;
  }

  bool try_one_bad_window() {
    const bool mine = comm_.rank() == static_cast<int>(step_) % comm_.size();
    try {
      const Window window = comm_.window(mine ? std::size_t{1} << 60 : 64);
      say({Outcome::Kind::wrong, task_.rank, 0, -1, "a window of 2^60 bytes", {}});
      return false;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::peer_lost) throw;
      task_.services->tell(std::string("no window: ") + e.what());
    }
    comm_.barrier();
    return true;
  }

  /// As docs/failures.md has it. False: this rank cannot go on.
  bool shrink() {
    if (failure_->code() != ErrorCode::peer_lost || failure_->rank() < 0) return false;
    std::vector<int> lost{failure_->rank()};
    for (;;) {
      try {
        comm_ = comm_.shrink(lost);
        break;
      } catch (const Error& e) {
        say_error(e);
        const bool known = std::ranges::find(lost, e.rank()) != lost.end();
        if (e.code() != ErrorCode::peer_lost || e.rank() < 0 || known) return false;
        lost.push_back(e.rank());
      }
    }
    for (const int r : lost) members_[static_cast<std::size_t>(r)] = -1;
    std::erase(members_, -1);
    agrees_ = true;
    say({Outcome::Kind::shrunk, task_.rank, 0, -1, {}, members_});
    return true;
  }

  const Task& task_;
  Communicator comm_;
  std::vector<int> members_;  // of comm_, by their first numbers
  std::size_t step_ = 0;
  bool agrees_ = false;
  std::optional<Error> failure_;
};

}  // namespace
}  // namespace tutti::simulator

extern "C" {

void tutti_simulated_rank(const tutti::simulator::Task& task) {
  tutti::simulator::Rank(task).run();
}

void tutti_simulated_warm() {
  tutti::host();
  tutti::l3_bytes();
}

void tutti_simulated_exit() { __cxa_finalize(&__dso_handle); }

}  // extern "C"
