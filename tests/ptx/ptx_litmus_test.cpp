// What the memory of the interpreter allows and forbids, against what PTX's model does (PTX ISA,
// chapter "Memory consistency model"; each test names the section that decides). A test that allows
// a result has to see it; one that forbids it must not, over all seeds.
#include <gtest/gtest.h>

#include "tests/ptx/litmus.h"

namespace tutti::ptx {
namespace {

const std::string kStoreX = "st.relaxed.sys.u64 [%x], 1;";
const std::string kStoreY = "st.relaxed.sys.u64 [%y], 1;";
const std::string kReleaseY = "st.release.sys.u64 [%y], 1;";
const std::string kLoadX0 = "ld.relaxed.sys.u64 %r0, [%x];";
const std::string kLoadX1 = "ld.relaxed.sys.u64 %r1, [%x];";
const std::string kLoadY0 = "ld.relaxed.sys.u64 %r0, [%y];";
const std::string kLoadY1 = "ld.relaxed.sys.u64 %r1, [%y];";
const std::string kAcquireY0 = "ld.acquire.sys.u64 %r0, [%y];";
const std::string kFence = "fence.acq_rel.sys;";
const std::string kFenceSc = "fence.sc.sys;";
/// What follows only if %r0 is set.
std::string if_r0(const std::string& then, const std::string& label = "$skip") {
  return "setp.ne.u64 %p0, %r0, 0;\n@!%p0 bra " + label + ";\n" + then + "\n" + label + ":\n";
}

bool stale(const Result& r) { return r.r[1][0] == 1 && r.r[1][1] == 0; }  // of message passing

// --- Message passing: "Release and acquire patterns", "Causality order"
// ---------------------------

TEST(MessagePassing, RelaxedIsAllowedToBeStale) {
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + kStoreY, kLoadY0 + kLoadX1}}).any(stale));
}
TEST(MessagePassing, ReleaseAndAcquireForbidIt) {
  const Results r = run_litmus({.threads = {kStoreX + kReleaseY, kAcquireY0 + kLoadX1}});
  EXPECT_FALSE(r.any(stale));
  EXPECT_TRUE(r.any([](const Result& o) { return o.r[1][0] == 1; }));
}
TEST(MessagePassing, ReleaseAloneIsNotEnough) {
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + kReleaseY, kLoadY0 + kLoadX1}}).any(stale));
}
TEST(MessagePassing, AcquireAloneIsNotEnough) {
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + kStoreY, kAcquireY0 + kLoadX1}}).any(stale));
}
TEST(MessagePassing, FencesForbidIt) {
  EXPECT_FALSE(
      run_litmus({.threads = {kStoreX + kFence + kStoreY, kLoadY0 + kFence + kLoadX1}}).any(stale));
}
TEST(MessagePassing, AFenceOfTheWriterAloneIsNotEnough) {
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + kFence + kStoreY, kLoadY0 + kLoadX1}}).any(stale));
}
TEST(MessagePassing, AFenceOfTheReaderAloneIsNotEnough) {
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + kStoreY, kLoadY0 + kFence + kLoadX1}}).any(stale));
}
TEST(MessagePassing, AFenceAndAnAcquireForbidIt) {
  EXPECT_FALSE(
      run_litmus({.threads = {kStoreX + kFence + kStoreY, kAcquireY0 + kLoadX1}}).any(stale));
}
TEST(MessagePassing, AnAtomicPassesOnWhatWasReleased) {
  const std::string add = "atom.global.add.relaxed.sys.u64 %r0, [%y], 1;";
  const Results r = run_litmus({.threads = {kStoreX + kReleaseY, add, kAcquireY0 + kLoadX1}});
  EXPECT_FALSE(
      r.any([](const Result& o) { return o.r[2][0] == 2 && o.r[1][0] == 1 && o.r[2][1] == 0; }));
  EXPECT_TRUE(r.any([](const Result& o) { return o.r[2][0] == 2; }));
}
TEST(MessagePassing, AThirdThreadPassesItOn) {  // ISA2
  const std::string middle = kAcquireY0 + "st.release.sys.u64 [%z], 1;";
  const std::string last = "ld.acquire.sys.u64 %r0, [%z];" + kLoadX1;
  EXPECT_FALSE(
      run_litmus({.threads = {kStoreX + kReleaseY, middle, last}}).any([](const Result& o) {
        return o.r[1][0] == 1 && o.r[2][0] == 1 && o.r[2][1] == 0;
      }));
}
TEST(MessagePassing, WhatWasReadIsPassedOn) {  // WRC
  const std::string middle = kLoadX0 + kReleaseY;
  EXPECT_FALSE(
      run_litmus({.threads = {kStoreX, middle, kAcquireY0 + kLoadX1}}).any([](const Result& o) {
        return o.r[1][0] == 1 && o.r[2][0] == 1 && o.r[2][1] == 0;
      }));
}
TEST(MessagePassing, WhatWasReadIsNotPassedOnByRelaxedStores) {
  const std::string middle = kLoadX0 + kStoreY;
  EXPECT_TRUE(
      run_litmus({.threads = {kStoreX, middle, kLoadY0 + kLoadX1}}).any([](const Result& o) {
        return o.r[1][0] == 1 && o.r[2][0] == 1 && o.r[2][1] == 0;
      }));
}

// --- Store buffering: "Fence-SC order", "Fence-SC"
// -------------------------------------------------

bool both_zero(const Result& r) { return r.r[0][0] == 0 && r.r[1][0] == 0; }

TEST(StoreBuffering, RelaxedIsAllowed) {
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + kLoadY0, kStoreY + kLoadX0}}).any(both_zero));
}
TEST(StoreBuffering, ReleaseAndAcquireAllowIt) {
  EXPECT_TRUE(run_litmus({.threads = {"st.release.sys.u64 [%x], 1;" + kAcquireY0,
                                      kReleaseY + "ld.acquire.sys.u64 %r0, [%x];"}})
                  .any(both_zero));
}
TEST(StoreBuffering, FencesThatAreNotScAllowIt) {
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + kFence + kLoadY0, kStoreY + kFence + kLoadX0}})
                  .any(both_zero));
}
TEST(StoreBuffering, FencesOfScForbidIt) {
  EXPECT_FALSE(run_litmus({.threads = {kStoreX + kFenceSc + kLoadY0, kStoreY + kFenceSc + kLoadX0}})
                   .any(both_zero));
}
TEST(StoreBuffering, OneFenceOfScIsNotEnough) {
  EXPECT_TRUE(
      run_litmus({.threads = {kStoreX + kFenceSc + kLoadY0, kStoreY + kLoadX0}}).any(both_zero));
}

// --- Independent reads of independent writes: "Causality", "Fence-SC"
// -------------------------------

bool disagree(const Result& r) {
  return r.r[2][0] == 1 && r.r[2][1] == 0 && r.r[3][0] == 1 && r.r[3][1] == 0;
}

TEST(IndependentReads, RelaxedMayDisagree) {
  EXPECT_TRUE(
      run_litmus({.threads = {kStoreX, kStoreY, kLoadX0 + kLoadY1, kLoadY0 + kLoadX1}}, 3000)
          .any(disagree));
}
TEST(IndependentReads, AcquiringMayDisagree) {
  EXPECT_TRUE(
      run_litmus({.threads = {"st.release.sys.u64 [%x], 1;", kReleaseY,
                              "ld.acquire.sys.u64 %r0, [%x];" + kLoadY1, kAcquireY0 + kLoadX1}},
                 3000)
          .any(disagree));
}
TEST(IndependentReads, FencesOfScAgree) {
  EXPECT_FALSE(run_litmus({.threads = {kStoreX, kStoreY, kLoadX0 + kFenceSc + kLoadY1,
                                       kLoadY0 + kFenceSc + kLoadX1}},
                          3000)
                   .any(disagree));
}

// --- Load buffering: "No thin air"
// -----------------------------------------------------------------

bool both_late(const Result& r) { return r.r[0][0] == 1 && r.r[1][0] == 1; }

// Nothing orders a relaxed load before a later store of its thread: the load precedes what the
// store is read for in base causality order only if the two synchronise ("Causality order").
TEST(LoadBuffering, RelaxedIsAllowed) {
  EXPECT_TRUE(run_litmus({.threads = {kLoadX0 + kStoreY, kLoadY0 + kStoreX}}, 2000).any(both_late));
}
TEST(LoadBuffering, OfPairsIsAllowed) {
  const std::string pair = "ld.relaxed.sys.v2.u64 {%r0, %r1}, [%x];";
  EXPECT_TRUE(run_litmus({.threads = {pair + kStoreY, kLoadY0 + kStoreX}}, 2000).any(both_late));
}
TEST(LoadBuffering, ADependencyOfOneThreadAllowsIt) {
  const std::string copies = kLoadX0 + "st.relaxed.sys.u64 [%y], %r0;";
  EXPECT_TRUE(run_litmus({.threads = {copies, kLoadY0 + kStoreX}}, 2000).any(both_late));
}
// "No thin air": the example of that section.
TEST(LoadBuffering, DependenciesForbidIt) {
  const std::string there = kLoadX0 + "st.relaxed.sys.u64 [%y], %r0;";
  const std::string back = kLoadY0 + "st.relaxed.sys.u64 [%x], %r0;";
  EXPECT_FALSE(run_litmus({.threads = {there, back}}, 2000).any([](const Result& o) {
    return o.r[0][0] != 0 || o.r[1][0] != 0;
  }));
}
TEST(LoadBuffering, DependenciesOfAddressesForbidIt) {
  const std::string there = kLoadX0 + "add.s64 %t0, %y, %r0;\nst.relaxed.sys.u64 [%t0], 1;";
  const std::string back = kLoadY0 + "add.s64 %t0, %x, %r0;\nst.relaxed.sys.u64 [%t0], 1;";
  EXPECT_FALSE(run_litmus({.threads = {there, back}}, 2000).any(both_late));
}
TEST(LoadBuffering, DependenciesOfBranchesForbidIt) {
  EXPECT_FALSE(
      run_litmus({.threads = {kLoadX0 + if_r0(kStoreY), kLoadY0 + if_r0(kStoreX, "$beyond")}}, 2000)
          .any([](const Result& o) { return o.r[0][0] != 0 || o.r[1][0] != 0; }));
}
TEST(LoadBuffering, ReleaseAndAcquireForbidIt) {
  EXPECT_FALSE(
      run_litmus({.threads = {kLoadX0 + kReleaseY, kAcquireY0 + kStoreX}}, 2000).any(both_late));
}
TEST(LoadBuffering, FencesForbidIt) {
  EXPECT_FALSE(
      run_litmus({.threads = {kLoadX0 + kFence + kStoreY, kLoadY0 + kFence + kStoreX}}, 2000)
          .any(both_late));
}
TEST(LoadBuffering, ARelaxedLoadInBetweenAllowsIt) {
  EXPECT_TRUE(run_litmus({.threads = {kLoadX0 + kStoreY,
                                      kLoadY0 + "ld.relaxed.sys.u64 %r1, [%z];" + kStoreX}},
                         2000)
                  .any(both_late));
}
TEST(LoadBuffering, ABarrierForbidsIt) {
  EXPECT_FALSE(
      run_litmus({.threads = {kLoadX0, ""}, .one_block = true, .after = {"", kStoreX}}, 2000)
          .any([](const Result& o) { return o.r[0][0] != 0; }));
}
TEST(LoadBuffering, AThreadDoesNotReadItsOwnLaterStore) {  // CoRW1
  EXPECT_FALSE(run_litmus({.threads = {kLoadX0 + kStoreX}}).any([](const Result& o) {
    return o.r[0][0] != 0;
  }));
}
TEST(LoadBuffering, AnAtomicIsNotLate) {
  const std::string add = "atom.global.add.relaxed.sys.u64 %r0, [%x], 2;";
  EXPECT_FALSE(run_litmus({.threads = {kLoadX0 + "red.global.add.relaxed.sys.u64 [%x], 2;"}})
                   .any([](const Result& o) { return o.r[0][0] != 0; }));
  EXPECT_FALSE(run_litmus({.threads = {add, add}}).any([](const Result& o) {
    return o.r[0][0] == o.r[1][0] || o.x != 4;
  }));
}

// --- One word: "Coherence order", "Sequential consistency per location"
// ----------------------------

TEST(Coherence, ReadsDoNotGoBack) {  // CoRR
  EXPECT_FALSE(run_litmus({.threads = {kStoreX, kLoadX0 + kLoadX1}}).any([](const Result& o) {
    return o.r[1][0] == 1 && o.r[1][1] == 0;
  }));
}
TEST(Coherence, AThreadReadsItsOwnWrites) {  // CoWR
  EXPECT_FALSE(run_litmus({.threads = {kStoreX + kLoadX0, "st.relaxed.sys.u64 [%x], 2;"}})
                   .any([](const Result& o) { return o.r[0][0] == 0; }));
}
TEST(Coherence, ItsLaterWriteIsLater) {  // CoWW
  EXPECT_FALSE(
      run_litmus({.threads = {kStoreX + "st.relaxed.sys.u64 [%x], 2;"}}).any([](const Result& o) {
        return o.x != 2;
      }));
}
TEST(Coherence, AWriteComesAfterWhatWasRead) {  // CoRW
  EXPECT_FALSE(run_litmus({.threads = {kLoadX0 + "st.relaxed.sys.u64 [%x], 2;", kStoreX}})
                   .any([](const Result& o) { return o.r[0][0] == 1 && o.x == 1; }));
}
TEST(Coherence, TwoReadersSeeOneOrder) {
  const std::string twice = kLoadX0 + kLoadX1;
  EXPECT_FALSE(run_litmus({.threads = {kStoreX, "st.relaxed.sys.u64 [%x], 2;", twice, twice}}, 2000)
                   .any([](const Result& o) {
                     return o.r[2][0] == 1 && o.r[2][1] == 2 && o.r[3][0] == 2 && o.r[3][1] == 1;
                   }));
}
TEST(Coherence, TwoWordsMayEndInOppositeOrders) {  // 2+2W
  EXPECT_TRUE(run_litmus({.threads = {kStoreX + "st.relaxed.sys.u64 [%y], 2;",
                                      kStoreY + "st.relaxed.sys.u64 [%x], 2;"}},
                         3000)
                  .any([](const Result& o) { return o.x == 1 && o.y == 1; }));
}
TEST(Coherence, AStoreMayComeBeforeOneThatWasReadLater) {  // S
  EXPECT_TRUE(
      run_litmus({.threads = {"st.relaxed.sys.u64 [%x], 2;" + kStoreY, kLoadY0 + kStoreX}}, 3000)
          .any([](const Result& o) { return o.r[1][0] == 1 && o.x == 2; }));
}
TEST(Coherence, NotAfterReleaseAndAcquire) {
  EXPECT_FALSE(
      run_litmus({.threads = {"st.relaxed.sys.u64 [%x], 2;" + kReleaseY, kAcquireY0 + kStoreX}},
                 2000)
          .any([](const Result& o) { return o.r[1][0] == 1 && o.x == 2; }));
}

// --- Atomics: "Atomicity"
// ---------------------------------------------------------------------------

TEST(Atomicity, EveryAdditionCounts) {
  const std::string add = "atom.global.add.relaxed.sys.u64 %r0, [%x], 1;";
  const Results r = run_litmus({.threads = {add, add, add}});
  EXPECT_FALSE(r.any([](const Result& o) {
    return o.x != 3 || o.r[0][0] == o.r[1][0] || o.r[1][0] == o.r[2][0] || o.r[0][0] == o.r[2][0];
  }));
}
TEST(Atomicity, EveryReductionCounts) {  // "red": as atom, without the value before
  const std::string add = "red.global.add.relaxed.sys.u64 [%x], 1;";
  EXPECT_FALSE(
      run_litmus({.threads = {add, add, add}}).any([](const Result& o) { return o.x != 3; }));
}
TEST(Atomicity, AReductionPassesOnWhatWasReleased) {
  const std::string add = "red.global.add.relaxed.sys.u64 [%y], 1;";
  EXPECT_FALSE(run_litmus({.threads = {kStoreX + kReleaseY, add, kAcquireY0 + kLoadX1}})
                   .any([](const Result& o) { return o.r[2][0] == 2 && o.r[2][1] == 0; }));
}
TEST(Atomicity, OneClaimWins) {
  const std::string claim = "atom.global.cas.relaxed.sys.b64 %r0, [%x], 0, 7;";
  EXPECT_FALSE(run_litmus({.threads = {claim, claim}}).any([](const Result& o) {
    return (o.r[0][0] == 0) == (o.r[1][0] == 0);
  }));
}
TEST(Atomicity, NoStoreComesBetween) {
  const std::string add = "atom.global.add.relaxed.sys.u64 %r0, [%x], 1;";
  EXPECT_FALSE(
      run_litmus({.threads = {add, "st.relaxed.sys.u64 [%x], 5;"}}, 2000).any([](const Result& o) {
        return (o.r[0][0] == 0 && o.x != 1 && o.x != 5) || (o.r[0][0] == 5 && o.x != 6);
      }));
}

// --- Plain data: "Conflict and data-races"
// ----------------------------------------------------------

const std::string kPlainStore = "st.u64 [%x], 1;";
const std::string kPlainLoad = if_r0("ld.u64 %r1, [%x];");

TEST(PlainData, IsSafeBehindReleaseAndAcquire) {
  const Results r = run_litmus({.threads = {kPlainStore + kReleaseY, kAcquireY0 + kPlainLoad}});
  EXPECT_TRUE(r.faults.empty());
  EXPECT_FALSE(r.any(stale));
}
TEST(PlainData, WithoutReleaseIsARace) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore + kStoreY, kAcquireY0 + kPlainLoad}}).has_race());
}
TEST(PlainData, WithoutAcquireIsARace) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore + kReleaseY, kLoadY0 + kPlainLoad}}).has_race());
}
TEST(PlainData, WrittenAfterTheReleaseIsARace) {
  EXPECT_TRUE(
      run_litmus({.threads = {kReleaseY + kPlainStore, kAcquireY0 + kPlainLoad}}).has_race());
}
TEST(PlainData, ARaceIsSeenWhicheverComesFirst) {
  const Results r = run_litmus({.threads = {kPlainStore, "ld.u64 %r0, [%x];"}});
  EXPECT_TRUE(r.has_race());
  EXPECT_TRUE(r.seen.empty());
}
TEST(PlainData, OtherBytesOfAWordAreNoRace) {
  const std::string low = "cvt.u32.u64 %who, %r0; st.u32 [%x], %who;";
  const std::string high = "cvt.u32.u64 %who, %r0; st.u32 [%x+4], %who;";
  EXPECT_TRUE(run_litmus({.threads = {low, high}}).faults.empty());
}

// --- Scopes: "Scope", "Morally strong operations"
// ----------------------------------------------------

TEST(Scopes, ABlocksScopeDoesNotReachAnotherBlock) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore + "st.release.cta.u64 [%y], 1;",
                                      "ld.acquire.cta.u64 %r0, [%y];" + kPlainLoad}})
                  .has_race());
}
TEST(Scopes, ABlocksScopeIsEnoughWithinIt) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore + "st.release.cta.u64 [%y], 1;",
                                      "ld.acquire.cta.u64 %r0, [%y];" + kPlainLoad},
                          .one_block = true})
                  .faults.empty());
}
TEST(Scopes, AGpusScopeReachesAllBlocksOfIt) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore + "st.release.gpu.u64 [%y], 1;",
                                      "ld.acquire.gpu.u64 %r0, [%y];" + kPlainLoad}})
                  .faults.empty());
}
TEST(Scopes, AGpusScopeDoesNotReachAnotherGpu) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore + "st.release.gpu.u64 [%y], 1;",
                                      "ld.acquire.gpu.u64 %r0, [%y];" + kPlainLoad},
                          .one_gpu = false})
                  .has_race());
}
TEST(Scopes, AFenceOfABlockDoesNotReachAnother) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore + "fence.acq_rel.cta;" + kStoreY,
                                      kLoadY0 + kFence + kPlainLoad}})
                  .has_race());
}

// --- Barriers: "bar", "bar.warp.sync"
// ----------------------------------------------------------------

TEST(Barriers, OrderWhatComesBeforeAndAfter) {
  const Results r = run_litmus(
      {.threads = {kPlainStore, ""}, .one_block = true, .after = {"", "ld.u64 %r0, [%x];"}});
  EXPECT_TRUE(r.faults.empty());
  EXPECT_FALSE(r.any([](const Result& o) { return o.r[1][0] != 1; }));
}
TEST(Barriers, WithoutOneItIsARace) {
  EXPECT_TRUE(run_litmus({.threads = {kPlainStore, ""},
                          .one_block = true,
                          .after = {"", "ld.u64 %r0, [%x];"},
                          .meeting = ""})
                  .has_race());
}

// --- 16 bytes, and lines: "Vector data types"
// ---------------------------------------------------------

const std::string kStorePair = "st.relaxed.sys.v2.u64 [%w], {1, 1};";
const std::string kLoadPair = "ld.relaxed.sys.v2.u64 {%r0, %r1}, [%w];";

TEST(Pairs, AreTwoWordsInAnyOrder) {
  const Results r = run_litmus({.threads = {kStorePair, kLoadPair}}, 3000);
  EXPECT_TRUE(r.any([](const Result& o) { return o.r[1][0] == 1 && o.r[1][1] == 0; }));
  EXPECT_TRUE(r.any([](const Result& o) { return o.r[1][0] == 0 && o.r[1][1] == 1; }));
  EXPECT_TRUE(r.any([](const Result& o) { return o.r[1][0] == 1 && o.r[1][1] == 1; }));
}

}  // namespace
}  // namespace tutti::ptx
