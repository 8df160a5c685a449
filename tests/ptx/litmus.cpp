#include "tests/ptx/litmus.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/ptx/machine.h"

namespace tutti::ptx {
namespace {

struct alignas(256) Words {
  std::uint64_t word[4 * 16] = {};  // x, y, z, w: a line each
  std::uint64_t result[4][4] = {};
};

/// A branch to each thread's part, and where they come together again.
std::string part(const std::vector<std::string>& threads, const char* name) {
  std::string text;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    text += fmt::format("setp.eq.u32 %q, %who, {};\n@%q bra ${}{};\n", i, name, i);
  }
  text += fmt::format("bra ${}_end;\n", name);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    text += fmt::format("${}{}:\n{}\nbra ${}_end;\n", name, i, threads[i], name);
  }
  return text + fmt::format("${}_end:\n", name);
}

std::string text_of(const Litmus& litmus) {
  std::string text = fmt::format(
      ".version 9.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry litmus(.param .u64 memory)\n.maxntid {}, 1, 1\n{{\n"
      ".reg .pred %p0, %q;\n.reg .b32 %who;\n"
      ".reg .b64 %x, %y, %z, %w, %out, %far, %r0, %r1, %r2, %r3, %t0, %t1;\n"
      "ld.param.u64 %x, [memory];\nadd.s64 %y, %x, 128;\nadd.s64 %z, %x, 256;\n"
      "add.s64 %w, %x, 384;\nadd.s64 %out, %x, 512;\n"
      "mov.u64 %r0, 0;\nmov.u64 %r1, 0;\nmov.u64 %r2, 0;\nmov.u64 %r3, 0;\n"
      "mov.u32 %who, %{}.x;\nmul.wide.u32 %far, %who, 32;\nadd.s64 %out, %out, %far;\n",
      litmus.one_block ? litmus.threads.size() : 1, litmus.one_block ? "tid" : "ctaid");
  text += part(litmus.threads, "first");
  if (!litmus.after.empty()) text += litmus.meeting + "\n" + part(litmus.after, "then");
  for (int k = 0; k < 4; ++k) text += fmt::format("st.u64 [%out+{}], %r{};\n", 8 * k, k);
  return text + "ret;\n}\n";
}

}  // namespace

Results run_litmus(const Litmus& litmus, int seeds) {
  const auto program = make_program(text_of(litmus));
  const std::size_t n = litmus.threads.size();
  Results results;
  for (int seed = 0; seed < seeds; ++seed) {
    Machine machine(static_cast<std::uint64_t>(seed));
    machine.longest_turn = seed % 2 == 0 ? 1 : 4;
    machine.memory.whole_lines = litmus.whole_lines;
    Words words;
    auto* const memory = reinterpret_cast<std::byte*>(&words);
    machine.memory.add(memory, sizeof words, false);
    std::vector<std::uint32_t> gpu(litmus.one_block ? 1 : n);
    for (std::size_t b = 0; b < gpu.size() && !litmus.one_gpu; ++b) {
      gpu[b] = static_cast<std::uint32_t>(b);
    }
    std::byte parameters[sizeof memory];
    std::memcpy(parameters, &memory, sizeof memory);
    try {
      machine.run(*program, parameters, gpu);
    } catch (const Fault& f) {
      const std::string what = f.what();
      ++results.faults[what.substr(0, what.find('\n'))];
      continue;
    }
    Result r;
    for (std::size_t t = 0; t < n; ++t) std::copy_n(words.result[t], 4, r.r[t].begin());
    r.x = words.word[0];
    r.y = words.word[16];
    r.z = words.word[32];
    ++results.seen[r];
  }
  return results;
}

}  // namespace tutti::ptx
