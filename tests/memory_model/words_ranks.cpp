// What ranks say of themselves, and who is there. docs/memory-model.md says which program each word
// has.
#include <linux/futex.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "execute/signature.h"
#include "tests/memory_model/words.h"
#include "tests/memory_model/zeros.h"
#include "transport/host/control_block.h"
#include "transport/host/host_board.h"
#include "transport/host/life_word.h"
#include "transport/host/nameplate.h"
#include "transport/host_losses.h"

namespace tutti::model {
namespace {

// --- What ranks say of themselves ----------------------------------------------------------------

Program the_first_failure() {
  return [] {
    const auto record = zeros<FailureRecord>();
    const auto written = std::make_shared<std::array<bool, 2>>();
    const auto writer = [record, written](int rank) {
      return [record, written, rank] {
        (*written)[static_cast<std::size_t>(rank)] =
            record->write({ErrorCode::peer_lost, rank, rank == 0 ? "first" : "second", rank == 1});
      };
    };
    return Execution{{writer(0), writer(1),
                      [record] {
                        const auto f = record->read();
                        if (!f) return;
                        require(f->code == ErrorCode::peer_lost, "another code");
                        require(f->text == (f->rank == 0 ? "first" : "second"), "torn");
                        require(f->cut_off == (f->rank == 1), "torn");
                      }},
                     [written] { require((*written)[0] != (*written)[1], "two have written"); }};
  };
}

Program a_remark_that_is_rewritten() {
  return [] {
    constexpr std::string_view kFirst = "the first sentence", kSecond = "another one, a longer one";
    const auto remark = zeros<Remark>();
    remark->say(1, kFirst);
    return Execution{{[remark] { remark->say(2, kSecond); },
                      [remark] {
                        const auto said = remark->read();
                        if (!said) return;
                        require(said->text == (said->number == 1 ? kFirst : kSecond),
                                "parts of two sentences");
                      }}};
  };
}

// Two threads of a rank speak, one after the other or at once.
Program a_remark_of_two_threads() {
  return [] {
    const auto remark = zeros<Remark>();
    const auto check = [remark] {
      const auto said = remark->read();
      if (said) require(said->text == (said->number == 1 ? "one" : "two"), "parts of both");
    };
    return Execution{
        {[remark] { remark->say(1, "one"); }, [remark] { remark->say(2, "two"); }, check}, check};
  };
}

Program a_nameplate() {
  return [] {
    const auto plate = zeros<Nameplate>();
    return Execution{{[plate] {
                        Nameplate what{};
                        what.rank = 3;
                        what.size = 7;
                        what.identity = 9;
                        plate->fill(what);
                      },
                      [plate] {
                        // As `tutti top` reads it.
                        if (plate->magic.load(std::memory_order_acquire) != Nameplate::kMagic) {
                          return;
                        }
                        require(plate->rank == 3 && plate->size == 7 && plate->identity == 9,
                                "half a nameplate");
                      }}};
  };
}

Signature signature(std::uint64_t sequence) {
  Signature s;
  s.sequence = sequence;
  s.collective = sequence < kRecords ? Collective::all_reduce : Collective::broadcast;
  s.count = 100 + sequence;
  s.detail = 1000 + sequence;
  return s;
}

// The record of an operation is used again kRecords operations later.
Program records_of_operations() {
  return [] {
    const auto block = zeros<ControlBlock>();
    return Execution{{[block] {
                        publish_signature(*block, signature(1));
                        publish_signature(*block, signature(1 + kRecords));
                      },
                      [block] {
                        for (const std::uint64_t n : {std::uint64_t{1}, 1 + kRecords}) {
                          const auto s = read_signature(*block, n);
                          if (s) require(*s == signature(n), "parts of two records");
                        }
                      }}};
  };
}

// Of two roots that call different things, at least one sees the other's.
Program roots_that_differ() {
  return [] {
    struct Both {
      ControlBlock of[2];
    };
    const auto blocks = zeros<Both>();
    const auto seen = std::make_shared<std::array<bool, 2>>();
    const auto rank = [blocks, seen](std::size_t self) {
      return [blocks, seen, self] {
        Signature s = signature(kRecords + 1);
        s.root = static_cast<std::int32_t>(self);
        publish_signature(blocks->of[self], s);
        (*seen)[self] = read_signature(blocks->of[1 - self], s.sequence).has_value();
      };
    };
    return Execution{{rank(0), rank(1)},
                     [seen] { require((*seen)[0] || (*seen)[1], "nobody sees that they differ"); }};
  };
}

// --- Who is there --------------------------------------------------------------------------------

/// One that stays: a list of the process may still name it after an execution that has failed.
LifeWord& life_word() {
  static std::vector<std::unique_ptr<LifeWord>> all;
  // The thread of this process that holds words is not of any program.
  static const Life own(*all.emplace_back(new LifeWord{}), nullptr);
  return *all.emplace_back(new LifeWord{});
}

/// What the kernel does where the thread ends whose list that is (linux/futex.h).
void walk_as_the_kernel(const robust_list_head& head, std::uint32_t thread) {
  const auto mark = [&](const robust_list* entry) {
    auto& word = *reinterpret_cast<std::atomic<std::uint32_t>*>(
        reinterpret_cast<std::uintptr_t>(entry) + static_cast<std::uintptr_t>(head.futex_offset));
    if ((word.load() & FUTEX_TID_MASK) == thread) word.fetch_or(FUTEX_OWNER_DIED);
  };
  for (const robust_list* e = head.list.next; e != &head.list; e = e->next) mark(e);
  if (head.list_op_pending != nullptr) mark(head.list_op_pending);
}

Program a_rank_that_is_shut_out() {
  return [] {
    LifeWord& word = life_word();
    const auto held = std::make_shared<std::array<bool, 2>>();
    return Execution{{[&word, held] {
                        const Life life(word, nullptr);
                        (*held)[0] = life.is_held();
                        if (life.is_held()) {
                          require(word.state() == LifeWord::State::alive, "it holds the word");
                        }
                      },
                      [&word, held] { (*held)[1] = word.shut_out(); }},
                     [held] { require(!(*held)[0] || !(*held)[1], "shut out, and there"); }};
  };
}

// What a rank did before it left is seen by who sees that it has left.
Program a_rank_that_leaves() {
  return [] {
    LifeWord& word = life_word();
    const auto data = std::make_shared<int>(0);
    return Execution{{[&word, data] {
                        const Life life(word, nullptr);
                        *data = 5;
                      },
                      [&word, data] {
                        if (word.state() == LifeWord::State::left) {
                          require(*data == 5, "what it did is not there");
                        }
                      }}};
  };
}

// Wherever the process is killed, its rank does not count as alive.
Program a_rank_that_is_killed() {
  return [] {
    LifeWord& word = life_word();
    LifeWord& other = life_word();
    const auto thread = std::make_shared<std::uint32_t>(0);
    return Execution{{[&word, &other, thread] {
                        const Life first(other, nullptr);
                        *thread = other.word.load(std::memory_order_relaxed);
                        const Life life(word, nullptr);
                      },
                      [&word, &other, thread] {
                        if (!kill(0) || *thread == 0) return;
                        walk_as_the_kernel(*held_list(), *thread);
                        for (const LifeWord* w : {&word, &other}) {
                          require(w->state() != LifeWord::State::alive, "a dead rank is alive");
                        }
                      }}};
  };
}

Program refusals() {
  return [] {
    auto memory = SharedMemory::create(HostBoard::kLabel, HostBoard::bytes(1));
    const auto board = std::make_shared<HostBoard>(std::move(memory), 1);
    for (std::uint64_t n = 1; n <= 11; ++n) board->refuse(0, n, 100 + n);
    return Execution{{[board] { board->refuse(0, 12, 112); },  // in the place of the first
                      [board] {
                        for (const std::uint64_t n : {1, 12}) {
                          const auto because_of = board->refusal(0, n);
                          if (because_of) require(*because_of == 100 + n, "another one's reason");
                        }
                      }}};
  };
}

// A rank that sees that there is a refusal finds it.
Program the_first_refusal() {
  return [] {
    auto memory = SharedMemory::create(HostBoard::kLabel, HostBoard::bytes(1));
    const auto board = std::make_shared<HostBoard>(std::move(memory), 1);
    return Execution{{[board] { board->refuse(0, 1, 101); },
                      [board] {
                        if (board->has_refusals()) require(!!board->refusal(0, 1), "none is found");
                      }}};
  };
}

Program losses() {
  return [] {
    struct Shared {
      alignas(8) std::byte bytes[HostLosses::bytes(70)];
      FailureRecord failure;
    };
    const auto s = zeros<Shared>();
    const auto loses = [s](int rank) {
      return [s, rank] {
        HostLosses(s->bytes, 70).add(rank);
        s->failure.write({ErrorCode::peer_lost, rank, "", false});
      };
    };
    return Execution{
        {loses(3), loses(5),
         [s] {
           const auto f = s->failure.read();
           if (!f) return;
           bool found = false;
           for (const int r : HostLosses(s->bytes, 70).ranks()) found |= r == f->rank;
           require(found, "a failure without its loss");
         }},
        [s] {
          require(HostLosses(s->bytes, 70).ranks() == std::vector{3, 5}, "one is gone");
        }};
  };
}

// One rank finds the answer, and the others take it.
Program findings() {
  return [] {
    const auto f = zeros<Findings>();
    const auto finders = std::make_shared<int>(0);
    const auto asks = [f, finders] {
      const std::uint8_t answer = f->ask(77, 3);
      if (answer == 0) f->say(77, 9);
      require(answer == 0 || answer == 9, "another answer");
    };
    return Execution{{asks, asks}};
  };
}

}  // namespace

std::vector<Words> words_of_ranks() {
  return {
      {"TheFirstFailure", the_first_failure},
      {"ARemarkThatIsRewritten", a_remark_that_is_rewritten},
      {"ARemarkOfTwoThreads", a_remark_of_two_threads},
      {"ANameplate", a_nameplate},
      {"RecordsOfOperations", records_of_operations},
      {"RootsThatDiffer", roots_that_differ},
      {"ARankThatIsShutOut", a_rank_that_is_shut_out},
      {"ARankThatLeaves", a_rank_that_leaves},
      {"ARankThatIsKilled", a_rank_that_is_killed},
      {"Refusals", refusals},
      {"TheFirstRefusal", the_first_refusal},
      {"Losses", losses},
      {"Findings", findings},
  };
}

}  // namespace tutti::model
