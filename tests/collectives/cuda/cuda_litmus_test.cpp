// The memory order that the CUDA executor's protocols need (step_logic.h): every order in which a
// sender's and a receiver's accesses can happen is tried, for three messages through two slots.
//
// An access waits for an earlier one of its thread only where something says so: they have one
// address, the earlier one acquires, the later one releases, or, by the rules of hardware alone, a
// store comes after a load that it depends on. PTX's model promises nothing for the latter.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

enum class Rules { ptx, hardware };
enum class Order { relaxed, acquire, release };

constexpr int kSlots = 2;
constexpr int kMessages = 3;

/// Memory: where a slot's data, its flag and its header are, and the receiver's credit.
enum Place { kData = 0, kFlag = kSlots, kHeader = 2 * kSlots, kCredit = 3 * kSlots, kPlaces };

struct Access {
  enum Kind { store, wait_for, wait_at_least, read } kind;
  int place;
  int value;  // stored, waited for, or to be read
  Order order = Order::relaxed;
};
using Program = std::vector<Access>;
using Memory = std::array<std::int8_t, kPlaces>;

class Search {
 public:
  Search(const Program& sender, const Program& receiver, Rules rules)
      : programs_{sender, receiver}, rules_(rules) {}

  /// What goes wrong in some order; none: nothing in any.
  std::optional<std::string> run() {
    visit({});
    return wrong_;
  }

 private:
  struct State {
    std::array<std::uint32_t, 2> done{};  // by program, a bit for each access
    Memory memory{};
    auto operator<=>(const State&) const = default;
  };

  bool is_done(const State& s, int p) const { return s.done[p] == (1u << programs_[p].size()) - 1; }
  bool must_wait(const Access& later, const Access& earlier) const {
    const bool depends = earlier.kind != Access::store && later.kind == Access::store;
    return later.place == earlier.place || earlier.order == Order::acquire ||
           later.order == Order::release || (rules_ == Rules::hardware && depends);
  }
  bool can_happen(const State& s, int p, std::size_t i) const {
    const Access& a = programs_[p][i];
    for (std::size_t e = 0; e < i; ++e) {
      if ((s.done[p] >> e & 1) == 0 && must_wait(a, programs_[p][e])) return false;
    }
    const int now = s.memory[static_cast<std::size_t>(a.place)];
    return a.kind == Access::wait_for        ? now == a.value
           : a.kind == Access::wait_at_least ? now >= a.value
                                             : true;
  }

  void visit(const State& s) {
    if (wrong_ || !seen_.insert(s).second) return;
    bool stuck = true;
    for (int p = 0; p < 2; ++p) {
      for (std::size_t i = 0; i < programs_[p].size(); ++i) {
        if ((s.done[p] >> i & 1) != 0 || !can_happen(s, p, i)) continue;
        stuck = false;
        const Access& a = programs_[p][i];
        State next = s;
        next.done[p] |= 1u << i;
        auto& word = next.memory[static_cast<std::size_t>(a.place)];
        if (a.kind == Access::read && word != a.value) {
          wrong_ = "message " + std::to_string(a.value) + " is read as " + std::to_string(word);
          return;
        }
        if (a.kind == Access::store) word = static_cast<std::int8_t>(a.value);
        visit(next);
      }
    }
    if (stuck && !(is_done(s, 0) && is_done(s, 1))) wrong_ = "waits in vain";
  }

  std::array<Program, 2> programs_;
  Rules rules_;
  std::set<State> seen_;
  std::optional<std::string> wrong_;
};

/// Simple: the header says that the data is there.
struct Simple {
  Order header_stored = Order::release;
  Order header_loaded = Order::acquire;
  Order credit_stored = Order::release;
  Order credit_loaded = Order::acquire;

  std::optional<std::string> run(Rules rules) const {
    Program sender, receiver;
    for (int n = 1; n <= kMessages; ++n) {
      const int slot = n % kSlots;
      sender.push_back({Access::wait_at_least, kCredit, n - kSlots, credit_loaded});
      sender.push_back({Access::store, kData + slot, n});
      sender.push_back({Access::store, kHeader + slot, n, header_stored});
      receiver.push_back({Access::wait_for, kHeader + slot, n, header_loaded});
      receiver.push_back({Access::read, kData + slot, n});
      receiver.push_back({Access::store, kCredit, n, credit_stored});
    }
    return Search(sender, receiver, rules).run();
  }
};

/// LL and LL128: what a load finds has its flag in it; the header is only compared.
struct Flagged {
  bool together = true;  // data and flag are one access
  Order credit_stored = Order::relaxed;
  Order credit_loaded = Order::acquire;

  std::optional<std::string> run(Rules rules) const {
    Program sender, receiver;
    for (int n = 1; n <= kMessages; ++n) {
      const int slot = n % kSlots;
      sender.push_back({Access::wait_at_least, kCredit, n - kSlots, credit_loaded});
      sender.push_back({Access::store, kHeader + slot, n});
      sender.push_back({Access::store, kData + slot, n});
      if (!together) sender.push_back({Access::store, kFlag + slot, n});
      receiver.push_back({Access::wait_for, (together ? kData : kFlag) + slot, n});
      if (!together) receiver.push_back({Access::read, kData + slot, n});
      receiver.push_back({Access::wait_for, kHeader + slot, n});
      receiver.push_back({Access::store, kCredit, n, credit_stored});
    }
    return Search(sender, receiver, rules).run();
  }
};

TEST(CudaLitmus, Simple) {
  EXPECT_EQ(Simple{}.run(Rules::ptx), std::nullopt);
  // Each of the four is needed, by PTX's rules; by hardware's those of the data.
  EXPECT_TRUE(Simple{.header_stored = Order::relaxed}.run(Rules::hardware));
  EXPECT_TRUE(Simple{.header_loaded = Order::relaxed}.run(Rules::hardware));
  EXPECT_TRUE(Simple{.credit_stored = Order::relaxed}.run(Rules::ptx));
  EXPECT_TRUE(Simple{.credit_loaded = Order::relaxed}.run(Rules::ptx));
}

TEST(CudaLitmus, DataWithItsFlag) {
  EXPECT_EQ(Flagged{}.run(Rules::hardware), std::nullopt);
  EXPECT_EQ(Flagged{.credit_stored = Order::release}.run(Rules::ptx), std::nullopt);
  // What is asked of hardware, and the worst that comes of it: nobody reads wrong data.
  EXPECT_EQ(Flagged{}.run(Rules::ptx), "waits in vain");
  EXPECT_TRUE(
      (Flagged{.credit_stored = Order::release, .credit_loaded = Order::relaxed}.run(Rules::ptx)));
  // Where a line does not stay whole.
  EXPECT_TRUE(Flagged{.together = false}.run(Rules::hardware));
}

}  // namespace
}  // namespace tutti::test
