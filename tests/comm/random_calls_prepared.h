// A random call that is ready to be made, its memory, and what is to come out:
// random_calls_data.cpp makes it and checks it, random_calls.cpp makes the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/comm/random_calls.h"

namespace tutti::test {

/// Element i of what rank `rank` puts into a call.
std::uint64_t value_of_call(std::uint64_t call, std::size_t rank, std::size_t i);

struct RandomCalls::Prepared {
  Team* team = nullptr;
  Call call;
  std::uint64_t id = 0;
  std::vector<std::size_t> in_counts, out_counts;
  std::unique_ptr<Block> in, out;  // in place: no input of its own
  std::size_t width = 0;           // bytes of an element
  std::size_t results = 0;         // elements
  std::function<std::uint64_t(std::size_t)> expected;
};

}  // namespace tutti::test
