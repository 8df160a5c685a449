// What a checkpoint's file has in it: parts of tensors, and their runs; what is no file of tensors
// is refused. Part of checkpoint_test.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "parallel/checkpoint/checkpoint.h"
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

std::string with_header(const std::string& header) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header;
}

TEST(TensorFile, FilesThatAreNoneAreRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes) {
    folder.write("f", bytes);
    const Error e = error_of([&] { TensorFile(folder.path() + "/f"); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << bytes;
    return std::string(e.what());
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
  EXPECT_CONTAINS(refused(with_header(
                      R"({"a": {"dtype": "U8", "shape": [9999999999, 9999999999, 9999999999],
                       "data_offsets": [0, 0]}})")),
                  "larger than there can be");
  const auto of_two = [&](const std::string& first, const std::string& second) {
    return refused(with_header("{\"a\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": " +
                               first + "}, \"b\": {\"dtype\": \"U8\", \"shape\": [2], " +
                               "\"data_offsets\": " + second + "}}") +
                   "xxxx");
  };
  EXPECT_CONTAINS(of_two("[0, 2]", "[1, 3]"), "'b' does not begin where the one before it ends");
  EXPECT_CONTAINS(of_two("[2, 4]", "[2, 4]"), "'a' does not begin where the one before it ends");
  EXPECT_CONTAINS(
      refused(with_header(R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}})") +
              "xxx"),
      "it has 3 bytes of data, and its tensors have 2");
  for (const char* const shape : {"[-2]", "[2.0]", "[\"2\"]", "2", "{}"}) {
    EXPECT_CONTAINS(refused(with_header(std::string("{\"a\": {\"dtype\": \"U8\", \"shape\": ") +
                                        shape + ", \"data_offsets\": [0, 2]}}") +
                            "xx"),
                    "its header has");
  }
  EXPECT_CONTAINS(refused(with_header(R"({"__metadata__": {"tutti": "{\"version\": 99}"}})")),
                  "written by another version of Tutti");
  EXPECT_CONTAINS(std::string(error_of([&] { TensorFile(folder.path() + "/none"); }).what()),
                  "No such file");
}

TEST(TensorFile, ANameTwiceIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/f";
  const std::string a = R"("a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]})";
  const auto refused = [&](const std::string& header, const std::string& data) {
    folder.write("f", with_header(header) + data);
    const Error e = error_of([&] { TensorFile{path}; });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << header;
    return std::string(e.what());
  };
  EXPECT_CONTAINS(
      refused("{" + a + R"(, "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})", "xy"),
      "its header has \"a\" twice");
  EXPECT_CONTAINS(refused("{" + a + ", " + a + "}", "x"), "its header has \"a\" twice");
  EXPECT_CONTAINS(refused(R"({"a": {"dtype": "U8", "dtype": "I8", "shape": [1],
                              "data_offsets": [0, 1]}})",
                          "x"),
                  "its header has \"dtype\" twice");
  EXPECT_CONTAINS(refused(R"({"__metadata__": {"k": "1", "k": "2"}, )" + a + "}", "x"),
                  "its header has \"k\" twice");
  // The same name in different objects is none.
  folder.write("f", with_header(R"({"__metadata__": {"a": "1", "dtype": "2"}, )" + a +
                                R"(, "dtype": {"dtype": "U8", "shape": [],
                                               "data_offsets": [1, 2]}})") +
                        "xy");
  EXPECT_EQ(TensorFile(path).parts().size(), 2U);
}

// Files of other programs have types that Tutti does not have.
TEST(TensorFile, ATensorOfAnUnknownTypeIsRefusedOnlyWhereItIsAskedFor) {
  const TemporaryFolder folder;
  struct Type {
    const char* name;
    std::size_t bytes;  // of 4 elements
  };
  for (const auto& [type, bytes] : {Type{"BOOL", 4},
                                    {"I16", 8},
                                    {"U16", 8},
                                    {"C64", 32},
                                    {"F8_E8M0", 4},
                                    {"F4", 2},
                                    {"F6_E2M3", 3}}) {
    const std::string end = std::to_string(bytes), after = std::to_string(bytes + 8);
    folder.write("f", with_header(std::string(R"({"odd": {"dtype": ")") + type +
                                  R"(", "shape": [4], "data_offsets": [0, )" + end +
                                  R"(]}, "x": {"dtype": "F32", "shape": [2], "data_offsets": [)" +
                                  end + ", " + after + "]}}") +
                          std::string(bytes, '?') + std::string("\0\0\x80\x3f\0\0\0\x40", 8));
    const std::vector files{folder.path() + "/f"};
    float x[2] = {};
    std::vector parts{TensorPart::whole("x", DataType::float32, {2}, x)};
    EXPECT_EQ(read_parts(files, parts), (std::map<std::string, bool>{{"odd", false}, {"x", true}}));
    EXPECT_EQ(x[0], 1);
    EXPECT_EQ(x[1], 2);
    std::int8_t odd[4];
    parts.push_back(TensorPart::whole("odd", DataType::int8, {4}, odd));
    const Error e = error_of([&] { read_parts(files, parts); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_CONTAINS(std::string(e.what()),
                    std::string("/f has tensor 'odd' as ") + type + ", a type that Tutti");
  }
}

TEST(TensorFile, WhatCannotBeReadIsNotWritten) {
  const TemporaryFolder folder;
  float x = 1;
  const auto refused = [&](std::vector<std::string> names, const std::string& text) {
    std::vector<TensorPart> parts;
    for (const std::string& name : names) {
      parts.push_back(TensorPart::whole(name, DataType::float32, {}, &x));
    }
    const std::string path = folder.path() + "/f";
    const Error e = error_of([&] { write_whole_tensors(path, parts, {{"text", text}}); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    return std::string(e.what());
  };
  EXPECT_CONTAINS(refused({"x", "x"}, ""), "two parts of tensor 'x'");
  EXPECT_CONTAINS(refused({"__metadata__"}, ""), "cannot have the name '__metadata__'");
  EXPECT_CONTAINS(refused({"tutti.checksums"}, ""), "cannot have the name 'tutti.checksums'");
  EXPECT_CONTAINS(refused({"x\xff"}, ""), "the name of a tensor \"x\ufffd\" is not UTF-8");
  EXPECT_CONTAINS(refused({"x"}, "\xc3"), "the text 'text' \"\ufffd\" is not UTF-8");
}

}  // namespace
}  // namespace tutti::test
