// What the interpreter refuses: PTX that it does not know, and programs that do what PTX forbids.
// Each message names the line of the PTX.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/ptx/machine.h"

namespace tutti::ptx {
namespace {

/// Of 64 threads, with a parameter, 64 bytes of shared memory and some registers.
std::string kernel(const std::string& body, int threads = 64) {
  return fmt::format(
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry kernel(.param .u64 memory)\n"
      ".maxntid {}, 1, 1\n{{\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<8>;\n"
      ".shared .align 16 .b8 mine[64];\n.file 1 \"kernel.cu\"\nld.param.u64 %rd0, [memory];\n"
      "mov.u32 %r0, %tid.x;\n.loc 1 77 3\n{}\nret;\n}}\n",
      threads, body);
}

alignas(256) std::byte memory[256];

/// The message, or nothing.
std::string run(const std::string& body, int threads = 64) {
  try {
    const auto program = make_program(kernel(body, threads));
    Machine machine(3);
    machine.memory.add(memory, sizeof memory, false);
    machine.most_steps = 100000;
    std::byte* const address = memory;
    std::byte parameters[sizeof address];
    std::memcpy(parameters, &address, sizeof address);
    machine.run(*program, parameters, {0});
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Reader, RefusesWhatItDoesNotKnow) {
  EXPECT_SAYS(run("sin.approx.f32 %r1, %r0;"), "PTX line 15: sin.approx.f32: is not known");
  EXPECT_SAYS(run("ld.global.nc.u32 %r1, [%rd0];"), ".nc is not known");
  EXPECT_SAYS(run("add.s32 %r1, %r0, %r9;"), "of no use");
  EXPECT_SAYS(run("bra nowhere;"), "the label is missing");
  EXPECT_SAYS(run("setp.eq.u32 %p1, %r0, 1;\n@%p1 add.s32 %r1, %r0, 1;"),
              "only branches have predicates");
}
TEST(Reader, RefusesARegisterThatMayBeReadBeforeItIsWritten) {
  EXPECT_SAYS(run("setp.eq.u32 %p1, %r0, 1;\n@%p1 bra on;\nmov.u32 %r1, 1;\non:\n"
                  "add.s32 %r2, %r1, 1;"),
              "%r1 may be read before it is written");
}
TEST(Faults, NameTheLineOfThePtxAndOfTheSource) {
  const std::string text = run("mov.u64 %rd1, 8;\nst.u64 [%rd1], 1;");
  EXPECT_SAYS(text, "outside of all allocations");
  EXPECT_SAYS(text, "at PTX line 16 (kernel.cu:77): st.u64");
}
TEST(Faults, AnAddressBehindTheEnd) {
  EXPECT_SAYS(run("st.u64 [%rd0+256], 1;", 1), "outside of all allocations");
  EXPECT_EQ(run("st.u64 [%rd0+248], 1;", 1), "");
}
TEST(Faults, AMisalignedAddress) {
  EXPECT_SAYS(run("st.u32 [%rd0+2], 1;", 1), "no multiple");
  EXPECT_SAYS(run("st.v2.u64 [%rd0+8], {1, 2};", 1), "no multiple");
}
TEST(Faults, SharedMemoryBeforeItIsWritten) {
  EXPECT_SAYS(run("st.shared.u32 [mine+8], 1;\nld.shared.u64 %rd1, [mine+8];", 1),
              "byte 12 of shared memory is read before it is written");
}
TEST(Faults, SharedMemoryBehindItsEnd) {
  EXPECT_SAYS(run("st.shared.u32 [mine+64], 1;", 1), "outside of shared memory");
}
TEST(Faults, ARaceNamesBothPlaces) {
  const std::string text = run("st.shared.u32 [mine], %r0;");
  EXPECT_SAYS(text, "a race: 4 bytes");
  EXPECT_SAYS(text, "at PTX line 15 (kernel.cu:77): st.shared.u32");
}
TEST(Faults, DifferentBarriers) {
  EXPECT_SAYS(run("setp.eq.u32 %p1, %r0, 1;\n@%p1 bra on;\nbar.sync 0;\nbra end;\non:\n"
                  "bar.sync 0;\nend:\n"),
              "different barriers");
}
TEST(Faults, ABarrierThatSomeNeverReach) {
  EXPECT_NE(run("setp.eq.u32 %p1, %r0, 1;\n@%p1 bra end;\nbar.sync 0;\nend:\n"), "");
}
TEST(Faults, AMeetingThatSomeNeverReach) {
  EXPECT_NE(run("setp.eq.u32 %p1, %r0, 1;\n@%p1 bra end;\nbar.warp.sync -1;\nend:\n"), "");
}
TEST(Faults, ALoopWithoutAnEnd) { EXPECT_SAYS(run("on:\nbra on;"), "without an end"); }

TEST(Warps, ComeTogetherForAVote) {
  std::memset(memory, 0, sizeof memory);
  EXPECT_EQ(run("setp.eq.u32 %p1, %r0, 9;\nvote.sync.any.pred %p2, %p1, -1;\n"
                "selp.u32 %r1, 1, 0, %p2;\nmul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd2, %rd0, %rd1;\n"
                "st.u32 [%rd2], %r1;"),
            "");
  std::uint32_t said[64];
  std::memcpy(said, memory, sizeof said);
  for (std::uint32_t t = 0; t < 64; ++t) EXPECT_EQ(said[t], t < 32 ? 1U : 0U) << t;
}
/// What the 32 threads of a warp store of %r1 after `body`, which has %r0, the thread's number.
std::vector<std::uint32_t> each(const std::string& body) {
  std::memset(memory, 0, sizeof memory);
  EXPECT_EQ(run(body + "\nmul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd2, %rd0, %rd1;\n"
                       "st.u32 [%rd2], %r1;",
                32),
            "");
  std::vector<std::uint32_t> said(32);
  std::memcpy(said.data(), memory, sizeof(std::uint32_t) * said.size());
  return said;
}

// PTX ISA, "shfl.sync".
TEST(Warps, ShuffleTheirRegisters) {
  const auto shuffled = [](const std::string& mode, const std::string& b, const std::string& c) {
    return each("shfl.sync." + mode + ".b32 %r1|%p1, %r0, " + b + ", " + c + ", -1;\n" +
                "selp.u32 %r2, 100, 0, %p1;\nadd.u32 %r1, %r1, %r2;");
  };
  const auto up = shuffled("up", "3", "0");
  const auto down = shuffled("down", "3", "31");
  const auto butterfly = shuffled("bfly", "5", "31");
  const auto index = shuffled("idx", "6", "0x181f");  // segments of 8: of each its sixth
  for (std::uint32_t t = 0; t < 32; ++t) {
    EXPECT_EQ(up[t], t < 3 ? t : t - 3 + 100) << t;
    EXPECT_EQ(down[t], t > 28 ? t : t + 3 + 100) << t;
    EXPECT_EQ(butterfly[t], (t ^ 5) + 100) << t;
    EXPECT_EQ(index[t], t / 8 * 8 + 6 + 100) << t;
  }
  EXPECT_SAYS(run("setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra end;\n"
                  "shfl.sync.idx.b32 %r1, %r0, 20, 31, 0xffff;\nend:\n",
                  32),
              "of one that is not there");
}
TEST(Warps, SumByShuffling) {
  std::string body = "mov.u32 %r1, %r0;\n";
  for (const char* const distance : {"16", "8", "4", "2", "1"}) {
    body += std::string("shfl.sync.bfly.b32 %r2, %r1, ") + distance + ", 31, -1;\n" +
            "add.u32 %r1, %r1, %r2;\n";
  }
  for (const std::uint32_t sum : each(body)) EXPECT_EQ(sum, 31U * 32 / 2);
}

// PTX ISA, "red", "atom".
TEST(Atomics, OfEachOperator) {
  const auto after = [](const std::string& op, std::uint64_t before, const std::string& operand) {
    std::memcpy(memory, &before, sizeof before);
    EXPECT_EQ(run("red.global." + op + " [%rd0], " + operand + ";", 1), "");
    std::uint64_t now = 0;
    std::memcpy(&now, memory, sizeof now);
    return now;
  };
  EXPECT_EQ(after("add.u64", 40, "2"), 42U);
  EXPECT_EQ(after("min.u64", 40, "-2"), 40U);
  EXPECT_EQ(after("min.s64", 40, "-2"), ~std::uint64_t{1});
  EXPECT_EQ(after("max.u64", 40, "-2"), ~std::uint64_t{1});
  EXPECT_EQ(after("max.s64", 40, "-2"), 40U);
  EXPECT_EQ(after("and.b64", 12, "10"), 8U);
  EXPECT_EQ(after("or.b64", 12, "10"), 14U);
  EXPECT_EQ(after("xor.b64", 12, "10"), 6U);
  EXPECT_SAYS(run("red.global.add.u32 [%rd0], 1;", 1), "not of 64 bits");
  EXPECT_SAYS(run("mov.u64 %rd1, 1;\nred.global.add.u64 %rd1, [%rd0], 1;", 1), "no address");
}
TEST(Faults, ATrap) {
  EXPECT_SAYS(run("setp.ne.u32 %p1, %r0, 40;\n@%p1 bra end;\ntrap;\nend:\n"), "a trap");
  EXPECT_EQ(run("setp.ne.u32 %p1, %r0, 40;\n@%p1 bra end;\nexit;\nend:\n"), "");
}

TEST(Warps, OfAWarpEachGoesItsOwnWay) {
  std::memset(memory, 0, sizeof memory);
  // One thread waits for another one of its warp, which a GPU without independent threads could
  // not.
  EXPECT_EQ(
      run("setp.eq.u32 %p1, %r0, 0;\n@%p1 bra waits;\nsetp.eq.u32 %p2, %r0, 1;\n"
          "@!%p2 bra end;\nst.release.sys.u64 [%rd0], 5;\nbra end;\nwaits:\n"
          "ld.acquire.sys.u64 %rd1, [%rd0];\nsetp.ne.u64 %p3, %rd1, 5;\n@%p3 bra waits;\nend:\n"),
      "");
}

}  // namespace
}  // namespace tutti::ptx
