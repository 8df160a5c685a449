// What a checkpoint's file has in it: parts of tensors, and their runs; what is no file of tensors
// is refused. Part of checkpoint_test.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "parallel/checkpoint/file.h"
#include "parallel/checkpoint/part.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;

TEST(TensorPart, RunsAreTheBoxInRowMajorOrder) {
  const std::vector<std::size_t> shape{3, 4, 5};
  std::size_t boxes = 0;
  for (std::size_t o0 = 0; o0 < 3; ++o0) {
    for (std::size_t o1 = 0; o1 < 4; ++o1) {
      for (std::size_t o2 = 0; o2 < 5; ++o2) {
        for (std::size_t e0 = 1; e0 <= 3 - o0; ++e0) {
          for (std::size_t e1 = 1; e1 <= 4 - o1; ++e1) {
            for (std::size_t e2 = 1; e2 <= 5 - o2; ++e2) {
              std::vector<std::size_t> expected;
              for (std::size_t i = o0; i < o0 + e0; ++i) {
                for (std::size_t j = o1; j < o1 + e1; ++j) {
                  for (std::size_t k = o2; k < o2 + e2; ++k)
                    expected.push_back((i * 4 + j) * 5 + k);
                }
              }
              const std::size_t all = expected.size();
              for (const auto& [begin, count] :
                   {std::pair{std::size_t{0}, all}, {all / 3, all - all / 3}, {all / 2, all / 3}}) {
                const TensorPart part{.name = "t",
                                      .shape = shape,
                                      .offset = {o0, o1, o2},
                                      .extent = {e0, e1, e2},
                                      .begin = begin,
                                      .count = count};
                std::vector<std::size_t> got;
                part.for_each_run([&](std::size_t whole, std::size_t at, std::size_t n) {
                  EXPECT_EQ(at, got.size());
                  for (std::size_t i = 0; i < n; ++i) got.push_back(whole + i);
                });
                EXPECT_EQ(got, std::vector<std::size_t>(
                                   expected.begin() + static_cast<std::ptrdiff_t>(begin),
                                   expected.begin() + static_cast<std::ptrdiff_t>(begin + count)));
                ++boxes;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(boxes, 3U * 6 * 10 * 15);
}

TEST(TensorPart, APartThatCannotBeIsRefused) {
  float x = 0;
  const auto refused = [](const TensorPart& part) {
    const Error e = error_of([&] { part.check(); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return std::string(e.what());
  };
  EXPECT_CONTAINS(refused({.name = "", .shape = {1}}), "a tensor needs a name");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4}, .begin = 2, .count = 3, .data = &x}),
                  "3 elements from 2 on are not among its 4");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4, 4}, .offset = {0, 3}, .extent = {4, 2}}),
                  "2 from 3 on are not among the 4 of dimension 1");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4, 4}, .offset = {0}, .extent = {4}}),
                  "the tensor has 2 dimensions, the offset 1, the extent 1");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4}, .count = 4}), "it has no memory");
}

TEST(TensorFile, FilesThatAreNoneAreRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes) {
    folder.write("f", bytes);
    const Error e = error_of([&] { TensorFile(folder.path() + "/f"); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << bytes;
    return std::string(e.what());
  };
  const auto with_header = [](const std::string& header) {
    std::string bytes(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header;
  };
  EXPECT_CONTAINS(refused(""), "no file of tensors");
  EXPECT_CONTAINS(refused(std::string(8, '\xff')), "no file of tensors, or a torn one");
  EXPECT_CONTAINS(refused(with_header("[]")), "its header is no JSON");
  EXPECT_CONTAINS(refused(with_header("{\"a\": 3}")), "its header has something else");
  EXPECT_CONTAINS(
      refused(with_header(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})")),
      "tensor 'a' lies behind its end");
  EXPECT_CONTAINS(
      refused(with_header(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})") +
              "xxxx"),
      "tensor 'a' of 2 F32 has 4 bytes");
  EXPECT_CONTAINS(
      refused(with_header(R"({"a": {"dtype": "C64", "shape": [], "data_offsets": [0, 0]}})")),
      "is of type C64");
  EXPECT_CONTAINS(refused(with_header(
                      R"({"a": {"dtype": "U8", "shape": [9999999999, 9999999999, 9999999999],
                       "data_offsets": [0, 0]}})")),
                  "larger than there can be");
  EXPECT_CONTAINS(refused(with_header(R"({"__metadata__": {"tutti": "{\"version\": 99}"}})")),
                  "written by another version of Tutti");
  EXPECT_CONTAINS(std::string(error_of([&] { TensorFile(folder.path() + "/none"); }).what()),
                  "No such file");
}

}  // namespace
}  // namespace tutti::test
