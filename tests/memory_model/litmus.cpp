// See litmus.h.
#include "tests/memory_model/litmus.h"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "core/asymmetric_fence.h"

namespace tutti::model {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcqRel = std::memory_order_acq_rel;
constexpr auto kSeqCst = std::memory_order_seq_cst;

struct Words {
  std::atomic<int> x{0}, y{0}, z{0};
  std::array<int, 4> r{};
};
using Thread = void (*)(Words&);

template <std::size_t kResults, class... Threads>
Program program(std::set<std::string>& outcomes, Threads... threads) {
  return [&outcomes, threads...] {
    const auto words = std::make_shared<Words>();
    Execution e;
    const std::array<Thread, sizeof...(Threads)> all{threads...};
    for (const Thread t : all) e.threads.emplace_back([words, t] { t(*words); });
    e.after = [words, &outcomes] {
      std::string text;
      for (std::size_t n = 0; n < kResults; ++n) {
        text += fmt::format("{}{}", n > 0 ? " " : "", words->r[n]);
      }
      outcomes.insert(text);
    };
    return e;
  };
}

template <std::memory_order kStore, std::memory_order kLoad>
Program store_buffering(std::set<std::string>& o) {
  return program<2>(
      o, [](Words& w) { w.x.store(1, kStore), w.r[0] = w.y.load(kLoad); },
      [](Words& w) { w.y.store(1, kStore), w.r[1] = w.x.load(kLoad); });
}

Program store_buffering_fences(std::set<std::string>& o) {
  return program<2>(
      o,
      [](Words& w) {
        w.x.store(1, kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        w.r[0] = w.y.load(kRelaxed);
      },
      [](Words& w) {
        w.y.store(1, kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        w.r[1] = w.x.load(kRelaxed);
      });
}

template <bool kHeavy>
Program store_buffering_asymmetric(std::set<std::string>& o) {
  return program<2>(
      o,
      [](Words& w) {
        w.x.store(1, kRelaxed);
        light_fence();
        w.r[0] = w.y.load(kRelaxed);
      },
      [](Words& w) {
        w.y.store(1, kRelaxed);
        kHeavy ? heavy_fence() : light_fence();
        w.r[1] = w.x.load(kRelaxed);
      });
}

template <std::memory_order kStore, std::memory_order kLoad>
Program message_passing(std::set<std::string>& o) {
  return program<2>(
      o, [](Words& w) { w.x.store(1, kRelaxed), w.y.store(1, kStore); },
      [](Words& w) { w.r[0] = w.y.load(kLoad), w.r[1] = w.x.load(kRelaxed); });
}

Program message_passing_fences(std::set<std::string>& o) {
  return program<2>(
      o,
      [](Words& w) {
        w.x.store(1, kRelaxed);
        std::atomic_thread_fence(kRelease);
        w.y.store(1, kRelaxed);
      },
      [](Words& w) {
        w.r[0] = w.y.load(kRelaxed);
        std::atomic_thread_fence(kAcquire);
        w.r[1] = w.x.load(kRelaxed);
      });
}

Program load_buffering(std::set<std::string>& o) {
  return program<2>(
      o, [](Words& w) { w.r[0] = w.x.load(kRelaxed), w.y.store(1, kRelaxed); },
      [](Words& w) { w.r[1] = w.y.load(kRelaxed), w.x.store(1, kRelaxed); });
}

Program read_read_coherence(std::set<std::string>& o) {
  return program<2>(
      o, [](Words& w) { w.x.store(1, kRelaxed), w.x.store(2, kRelaxed); },
      [](Words& w) { w.r[0] = w.x.load(kRelaxed), w.r[1] = w.x.load(kRelaxed); });
}

template <std::memory_order kStore>
Program two_and_two_writes(std::set<std::string>& o) {
  return [&o] {
    const auto w = std::make_shared<Words>();
    return Execution{{[w] { w->x.store(1, kStore), w->y.store(2, kStore); },
                      [w] { w->y.store(1, kStore), w->x.store(2, kStore); }},
                     [w, &o] { o.insert(fmt::format("{} {}", w->x.load(), w->y.load())); }};
  };
}

template <std::memory_order kStore, std::memory_order kLoad>
Program independent_reads(std::set<std::string>& o) {
  return program<4>(
      o, [](Words& w) { w.x.store(1, kStore); }, [](Words& w) { w.y.store(1, kStore); },
      [](Words& w) { w.r[0] = w.x.load(kLoad), w.r[1] = w.y.load(kLoad); },
      [](Words& w) { w.r[2] = w.y.load(kLoad), w.r[3] = w.x.load(kLoad); });
}

// Another thread's exchange goes on with a release sequence, and its store does not.
template <bool kExchange>
Program release_sequence(std::set<std::string>& o) {
  return program<2>(
      o, [](Words& w) { w.x.store(1, kRelaxed), w.y.store(1, kRelease); },
      [](Words& w) {
        if constexpr (kExchange) {
          w.y.fetch_add(2, kRelaxed);
        } else if (w.y.load(kRelaxed) == 1) {
          w.y.store(3, kRelaxed);
        }
      },
      [](Words& w) { w.r[0] = w.y.load(kAcquire), w.r[1] = w.x.load(kRelaxed); });
}

// C++20: also the same thread's relaxed store does not.
Program own_store_ends_a_sequence(std::set<std::string>& o) {
  return program<2>(
      o, [](Words& w) { w.x.store(1, kRelaxed), w.y.store(1, kRelease), w.y.store(2, kRelaxed); },
      [](Words& w) { w.r[0] = w.y.load(kAcquire), w.r[1] = w.x.load(kRelaxed); });
}

Program causality(std::set<std::string>& o) {
  return program<3>(
      o, [](Words& w) { w.x.store(1, kRelaxed); },
      [](Words& w) { w.r[0] = w.x.load(kRelaxed), w.y.store(1, kRelease); },
      [](Words& w) { w.r[1] = w.y.load(kAcquire), w.r[2] = w.x.load(kRelaxed); });
}

Program additions(std::set<std::string>& o) {
  return program<2>(
      o, [](Words& w) { w.r[0] = w.x.fetch_add(1, kRelaxed); },
      [](Words& w) { w.r[1] = w.x.fetch_add(1, kRelaxed); });
}

template <bool kWeak>
Program exchange_alone(std::set<std::string>& o) {
  return program<1>(o, [](Words& w) {
    int none = 0;
    w.r[0] = kWeak ? w.x.compare_exchange_weak(none, 1, kAcqRel)
                   : w.x.compare_exchange_strong(none, 1, kAcqRel);
  });
}

// A fence, and not an operation on the words, gives the order of a store and another thread's load.
Program store_fence_load(std::set<std::string>& o) {
  return program<2>(
      o,
      [](Words& w) {
        w.x.store(1, kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        w.r[0] = w.y.load(kRelaxed);
      },
      [](Words& w) { w.y.store(1, kSeqCst), w.r[1] = w.x.load(kSeqCst); });
}

}  // namespace

const std::vector<Litmus>& litmus() {
  static const std::vector<Litmus> all{
      {"SbRelaxed", store_buffering<kRelaxed, kRelaxed>, {"0 0", "0 1", "1 0", "1 1"}},
      {"SbReleaseAcquire", store_buffering<kRelease, kAcquire>, {"0 0", "0 1", "1 0", "1 1"}},
      {"SbSeqCst", store_buffering<kSeqCst, kSeqCst>, {"0 1", "1 0", "1 1"}},
      {"SbFences", store_buffering_fences, {"0 1", "1 0", "1 1"}},
      {"SbFenceAndSeqCst", store_fence_load, {"0 1", "1 0", "1 1"}},
      {"SbLightAndHeavyFence", store_buffering_asymmetric<true>, {"0 1", "1 0", "1 1"}},
      {"SbLightFences", store_buffering_asymmetric<false>, {"0 0", "0 1", "1 0", "1 1"}},
      {"MpRelaxed", message_passing<kRelaxed, kRelaxed>, {"0 0", "0 1", "1 0", "1 1"}},
      {"MpReleaseOnly", message_passing<kRelease, kRelaxed>, {"0 0", "0 1", "1 0", "1 1"}},
      {"MpAcquireOnly", message_passing<kRelaxed, kAcquire>, {"0 0", "0 1", "1 0", "1 1"}},
      {"MpReleaseAcquire", message_passing<kRelease, kAcquire>, {"0 0", "0 1", "1 1"}},
      {"MpFences", message_passing_fences, {"0 0", "0 1", "1 1"}},
      {"LbIsNotShown", load_buffering, {"0 0", "0 1", "1 0"}},
      {"CoRR", read_read_coherence, {"0 0", "0 1", "0 2", "1 1", "1 2", "2 2"}},
      {"2+2WRelaxed", two_and_two_writes<kRelaxed>, {"1 1", "1 2", "2 1", "2 2"}},
      {"2+2WSeqCst", two_and_two_writes<kSeqCst>, {"1 2", "2 1", "2 2"}},
      {"IriwAcquire",
       independent_reads<kRelease, kAcquire>,
       {"0 0 0 0", "0 0 0 1", "0 0 1 0", "0 0 1 1", "0 1 0 0", "0 1 0 1", "0 1 1 0", "0 1 1 1",
        "1 0 0 0", "1 0 0 1", "1 0 1 0", "1 0 1 1", "1 1 0 0", "1 1 0 1", "1 1 1 0", "1 1 1 1"}},
      {"IriwSeqCst",
       independent_reads<kSeqCst, kSeqCst>,
       {"0 0 0 0", "0 0 0 1", "0 0 1 0", "0 0 1 1", "0 1 0 0", "0 1 0 1", "0 1 1 0", "0 1 1 1",
        "1 0 0 0", "1 0 0 1", "1 0 1 1", "1 1 0 0", "1 1 0 1", "1 1 1 0", "1 1 1 1"}},
      {"ReleaseSequence", release_sequence<true>, {"0 0", "0 1", "1 1", "2 0", "2 1", "3 1"}},
      {"StoreOfAnotherThread", release_sequence<false>, {"0 0", "0 1", "1 1", "3 0", "3 1"}},
      {"OwnStoreEndsASequence", own_store_ends_a_sequence, {"0 0", "0 1", "1 1", "2 0", "2 1"}},
      {"Wrc", causality, {"0 0 0", "0 0 1", "0 1 0", "0 1 1", "1 0 0", "1 0 1", "1 1 1"}},
      {"AdditionsAreAtomic", additions, {"0 1", "1 0"}},
      {"WeakExchangeMayFail", exchange_alone<true>, {"0", "1"}},
      {"StrongExchangeDoesNot", exchange_alone<false>, {"1"}},
  };
  return all;
}

Program passes_plain_data(bool ordered) {
  return [ordered] {
    struct Shared {
      std::atomic<int> flag{0};
      int data = 0;
    };
    const auto s = std::make_shared<Shared>();
    return Execution{{[s, ordered] {
                        s->data = 7;
                        s->flag.store(1, ordered ? kRelease : kRelaxed);
                      },
                      [s] {
                        if (s->flag.load(kAcquire) == 1) require(s->data == 7, "another value");
                      }}};
  };
}

Program waits_for_ever() {
  return [] {
    const auto w = std::make_shared<Words>();
    return Execution{{[w] { w->x.store(1, kRelaxed); },
                      [w] { await([&] { return w->x.load(kRelaxed) == 2; }); }}};
  };
}

}  // namespace tutti::model
