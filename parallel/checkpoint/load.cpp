// See checkpoint.h: from files to parts.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/coverage.h"
#include "parallel/checkpoint/file.h"

namespace tutti::parallel {
namespace {

struct Span {
  std::size_t whole = 0, part = 0, count = 0;
};

std::vector<Span> spans_of(const TensorPart& part) {
  std::vector<Span> all;
  part.for_each_run([&](std::size_t whole, std::size_t at, std::size_t count) {
    // Rows that follow each other in the whole are one.
    if (!all.empty() && all.back().whole + all.back().count == whole) {
      all.back().count += count;
    } else {
      all.push_back({whole, at, count});
    }
  });
  return all;
}

/// Copies what both have, and notes which elements of the whole these are, as of `by`.
void copy_common(const std::vector<Span>& from, const void* from_data, const std::vector<Span>& to,
                 void* to_data, std::size_t size, int by, std::vector<ElementRun>& copied,
                 const std::function<void()>& before_first) {
  bool is_first = true;
  for (std::size_t f = 0, t = 0; f < from.size() && t < to.size();) {
    const std::size_t first = std::max(from[f].whole, to[t].whole);
    const std::size_t from_end = from[f].whole + from[f].count, to_end = to[t].whole + to[t].count;
    const std::size_t end = std::min(from_end, to_end);
    if (first < end) {
      if (std::exchange(is_first, false)) before_first();
      std::memcpy(
          static_cast<std::byte*>(to_data) + (to[t].part + first - to[t].whole) * size,
          static_cast<const std::byte*>(from_data) + (from[f].part + first - from[f].whole) * size,
          (end - first) * size);
      copied.push_back({first, end, by});
    }
    from_end <= to_end ? ++f : ++t;
  }
}

/// A tensor's parts in the files.
struct Saved {
  TensorFile* file;
  std::size_t part;
  const TensorPart& get() const { return file->parts()[part]; }
};
using SavedByName = std::unordered_map<std::string, std::vector<Saved>>;

void fill(TensorPart& part, const std::vector<Saved>& saved) {
  const TensorPart& first = saved.front().get();
  if (first.type != part.type || first.shape != part.shape) {
    throw Error(ErrorCode::mismatch,
                fmt::format("{} has tensor '{}' as {} of {}, and the job has it as {} of {}",
                            saved.front().file->path(), part.name, name(first.type),
                            text_of(first.shape), name(part.type), text_of(part.shape)));
  }
  const std::vector<Span> wanted = spans_of(part);
  std::vector<ElementRun> filled;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const Saved& s = saved[i];
    if (s.get().type != first.type || s.get().shape != first.shape) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} and {} contradict each other about tensor '{}'",
                              saved.front().file->path(), s.file->path(), part.name));
    }
    copy_common(spans_of(s.get()), s.get().data, wanted, part.data, size_of(part.type),
                static_cast<int>(i), filled, [&] { s.file->verify(s.part); });
  }
  std::vector<ElementRun> needed;
  for (const Span& w : wanted) needed.push_back({w.whole, w.whole + w.count});
  const auto fault = coverage_fault(std::move(filled), needed);
  if (!fault) return;
  const auto file = [&](int i) { return saved[static_cast<std::size_t>(i)].file->path(); };
  throw Error(ErrorCode::invalid_argument,
              fault->both
                  ? fmt::format("{} and {} both have {} of tensor '{}'", file(fault->both->first),
                                file(fault->both->second), text_of(fault->elements), part.name)
                  : fmt::format("the checkpoint of {} does not have {} of tensor '{}'", file(0),
                                text_of(fault->elements), part.name));
}

}  // namespace

std::map<std::string, bool> read_parts(std::span<const std::string> files,
                                       std::span<TensorPart> parts, CheckpointTexts* texts) {
  std::vector<std::unique_ptr<TensorFile>> open;
  SavedByName saved;
  std::map<std::string, std::pair<std::string, std::string>> others;  // type, and file
  const TensorFile* of_tutti = nullptr;
  for (const std::string& path : files) {
    TensorFile& file = *open.emplace_back(std::make_unique<TensorFile>(path));
    if (file.has_notes()) {
      if (of_tutti == nullptr) of_tutti = &file;
      if (file.notes().id != of_tutti->notes().id) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{} and {} are of different checkpoints", of_tutti->path(), path));
      }
    }
    for (const auto& [name, type] : file.others()) others[name] = {type, path};
    for (std::size_t p = 0; p < file.parts().size(); ++p) {
      saved[file.parts()[p].name].push_back({&file, p});
    }
  }
  if (files.empty()) throw Error(ErrorCode::invalid_argument, "a checkpoint has files");
  std::map<std::string, bool> asked;
  for (const auto& [name, ignored] : saved) asked[name] = false;
  for (const auto& [name, ignored] : others) asked[name] = false;
  for (TensorPart& part : parts) {
    part.check();
    if (const auto known = asked.find(part.name); known != asked.end()) known->second = true;
    if (part.count == 0) continue;
    if (const auto other = others.find(part.name); other != others.end()) {
      throw Error(ErrorCode::mismatch,
                  fmt::format("{} has tensor '{}' as {}, a type that Tutti does not have",
                              other->second.second, part.name, other->second.first));
    }
    const auto found = saved.find(part.name);
    if (found == saved.end()) {
      throw Error(ErrorCode::mismatch,
                  fmt::format("the checkpoint of {} has no tensor '{}'", files.front(), part.name));
    }
    fill(part, found->second);
  }
  if (texts != nullptr) *texts = open.front()->notes().texts;
  return asked;
}

void export_checkpoint(const WholeCheckpoint& checkpoint, const std::string& path,
                       const std::function<std::string(const std::string&)>& name_of) {
  std::vector<TensorPart> tensors;
  std::set<std::string> seen;
  CheckpointTexts texts;
  for (const std::string& file : checkpoint.files) {
    const TensorFile open(file);
    if (texts.empty()) texts = open.notes().texts;
    for (const TensorPart& p : open.parts()) {
      if (!seen.insert(p.name).second || (name_of && name_of(p.name).empty())) continue;
      tensors.push_back(TensorPart::whole(p.name, p.type, p.shape, nullptr));
    }
  }
  std::vector<std::unique_ptr<std::byte[]>> memory;
  for (TensorPart& t : tensors) {
    t.data = memory.emplace_back(std::make_unique_for_overwrite<std::byte[]>(t.bytes())).get();
  }
  read_parts(checkpoint.files, tensors);
  if (name_of) {
    for (TensorPart& t : tensors) t.name = name_of(t.name);
  }
  std::ranges::sort(tensors, {}, &TensorPart::name);
  write_whole_tensors(path, tensors, texts);
}

}  // namespace tutti::parallel
