// What libnccl.so.2 exports: each function as a weak ncclX and a global pncclX at one address, the
// right soname, and nothing else but the one name that NVIDIA's library lets out.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "bindings/nccl/functions.h"

namespace tutti::test {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

struct Symbol {
  std::string address;
  char kind = '?';
};

std::map<std::string, Symbol> exported() {
  std::map<std::string, Symbol> symbols;
  std::istringstream lines(output_of("nm -D --defined-only " LIBNCCL));
  std::string address, kind, name;
  while (lines >> address >> kind >> name) symbols[name] = {address, kind.at(0)};
  return symbols;
}

std::set<std::string> expected() {
  std::set<std::string> names;
  for (const nccl::Function& function : nccl::kFunctions) names.emplace(function.name);
  return names;
}

TEST(Symbols, AreThoseOfNcclAndNoOthers) {
  const auto symbols = exported();
  const auto names = expected();
  ASSERT_EQ(names.size(), 96U);
  for (const auto& name : names) {
    const auto weak = symbols.find(name);
    const auto global = symbols.find("p" + name);
    ASSERT_NE(weak, symbols.end()) << name;
    ASSERT_NE(global, symbols.end()) << "p" << name;
    EXPECT_EQ(weak->second.kind, 'W') << name;
    EXPECT_EQ(global->second.kind, 'T') << name;
    EXPECT_EQ(weak->second.address, global->second.address) << name;
  }
  EXPECT_EQ(symbols.count("ncclResetDebugInitInternal"), 1U);
  EXPECT_EQ(symbols.size(), 2 * names.size() + 1);
}

TEST(Symbols, TheSonameIsNvidias) {
  EXPECT_NE(output_of("readelf -d " LIBNCCL).find("soname: [libnccl.so.2]"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
