#include "tests/fuzz/target.h"

#include <algorithm>

namespace tutti::fuzz {
namespace {

std::vector<Target>& registered() {
  static std::vector<Target> all;
  return all;
}

}  // namespace

Registered::Registered(const Target& target) { registered().push_back(target); }

std::vector<Target> targets() {
  std::vector<Target> all = registered();
  std::ranges::sort(all, {}, &Target::name);
  return all;
}

}  // namespace tutti::fuzz
