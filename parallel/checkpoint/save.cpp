// See checkpoint.h: the folder, and from parts to files.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/number.h"
#include "parallel/agreement.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/file.h"

namespace tutti::parallel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-", kRank = "rank-", kOf = "-of-", kEnd = ".safetensors";

std::string folder_of(const std::string& path, std::uint64_t step) {
  return fmt::format("{}/{}{:010}", path, kStep, step);
}

/// "rank-00003-of-00008.89abcdef01234567.safetensors"
struct FileName {
  int rank = 0, ranks = 0;
  std::uint64_t id = 0;
};

std::string text_of(const FileName& name) {
  return fmt::format("{}{:05}{}{:05}.{:016x}{}", kRank, name.rank, kOf, name.ranks, name.id, kEnd);
}

std::optional<FileName> file_name_of(std::string_view text) {
  const std::size_t of = text.find(kOf), point = text.find('.');
  if (!text.starts_with(kRank) || !text.ends_with(kEnd) || of == text.npos || point < of) {
    return std::nullopt;
  }
  const auto rank = parse_number<int>(text.substr(kRank.size(), of - kRank.size()));
  const auto ranks = parse_number<int>(text.substr(of + kOf.size(), point - of - kOf.size()));
  const std::string_view id = text.substr(point + 1, text.size() - point - 1 - kEnd.size());
  const auto number = parse_number<std::uint64_t>(id, 16);
  if (!rank || !ranks || *rank < 0 || *rank >= *ranks || !number) return std::nullopt;
  return FileName{*rank, *ranks, *number};
}

std::optional<std::uint64_t> step_of(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  if (!name.starts_with(kStep) || !entry.is_directory(ignored)) return std::nullopt;
  return parse_number<std::uint64_t>(std::string_view(name).substr(kStep.size()));
}

/// Those of a step's folder that are whole. There are several if a job was killed and came to the
/// same step again.
std::vector<WholeCheckpoint> whole_of(const fs::path& folder, std::uint64_t step) {
  std::map<std::pair<std::uint64_t, int>, std::vector<std::string>> by_id;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(folder, gone)) {
    const auto name = file_name_of(entry.path().filename().string());
    if (!name) continue;
    auto& files = by_id[{name->id, name->ranks}];
    files.resize(static_cast<std::size_t>(name->ranks));
    files[static_cast<std::size_t>(name->rank)] = entry.path().string();
  }
  std::vector<WholeCheckpoint> whole;
  for (auto& [id, files] : by_id) {
    if (std::ranges::find(files, "") == files.end()) whole.push_back({step, std::move(files)});
  }
  // The newer one first.
  const auto written = [&](const WholeCheckpoint& c) {
    return fs::last_write_time(c.files.front(), gone);
  };
  std::ranges::stable_sort(whole, std::greater{}, written);
  return whole;
}

/// Each rank runs `body` by itself. The gravest error, by its code, of all ranks; none: none has
/// failed.
std::optional<Error> gravest_error(Axis& axis, const std::function<void()>& body) {
  std::optional<Error> error;
  try {
    body();
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(ErrorCode::system, e.what());
  }
  Agreement ranks(axis);
  const std::uint64_t mine = error ? static_cast<std::uint64_t>(error->code()) : 0;
  const std::vector<std::uint64_t> codes = ranks.all({&mine, 1});
  const auto gravest = std::ranges::max_element(codes);
  if (*gravest == 0) return std::nullopt;
  const int rank = static_cast<int>(gravest - codes.begin());
  const std::string what = ranks.text_of(rank, error ? error->what() : "");
  if (rank == axis.rank()) return error;
  return Error(static_cast<ErrorCode>(*gravest), fmt::format("{}: {}", ranks.name(rank), what),
               ranks.world_rank(rank));
}

void on_all_ranks(Axis& axis, const std::function<void()>& body) {
  if (const auto error = gravest_error(axis, body)) throw *error;
}

std::uint64_t random_id() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32 | random()) | 1;  // not 0
}

}  // namespace

std::vector<WholeCheckpoint> whole_checkpoints(const std::string& path) {
  std::vector<std::pair<std::uint64_t, fs::path>> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(path, none)) {
    if (const auto step = step_of(entry)) steps.emplace_back(*step, entry.path());
  }
  std::ranges::sort(steps, std::greater{});
  std::vector<WholeCheckpoint> all;
  for (const auto& [step, folder] : steps) {
    for (WholeCheckpoint& c : whole_of(folder, step)) all.push_back(std::move(c));
  }
  return all;
}

/// A copy of the parts, and the thread that writes it.
struct CheckpointFolder::Writing {
  std::vector<TensorPart> parts;
  std::unique_ptr<std::byte[]> copy;
  std::exception_ptr error;
  std::atomic<bool> done{false};
  std::thread thread;
};

CheckpointFolder::CheckpointFolder(std::string path, Axis& axis, CheckpointOptions options)
    : path_(std::move(path)), axis_(axis), options_(options) {
  on_all_ranks(axis_, [&] {
    if (axis_.rank() != 0) return;
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) {
      throw Error(ErrorCode::system,
                  fmt::format("cannot make the folder {}: {}", path_, error.message()));
    }
  });
}

CheckpointFolder::~CheckpointFolder() {
  try {
    wait();
  } catch (const std::exception& e) {
    log().error("a checkpoint was not written: {}", e.what());
  }
}

/// All ranks agree on the checkpoint that they write now; old ones go.
std::uint64_t CheckpointFolder::begin(std::uint64_t step) {
  std::uint64_t id = 0;
  on_all_ranks(axis_, [&] {
    wait();
    if (axis_.rank() != 0) return;
    remove_old(step);
    std::error_code error;
    fs::create_directories(folder_of(path_, step), error);
    if (error) {
      throw Error(ErrorCode::system, fmt::format("cannot make the folder {}: {}",
                                                 folder_of(path_, step), error.message()));
    }
    id = random_id();
  });
  if (!Agreement(axis_).same(step)) {
    throw Error(
        ErrorCode::mismatch,
        fmt::format("ranks save checkpoints of different steps; this rank saves step {}", step));
  }
  return Agreement(axis_).largest(id);
}

/// Rank 0: leaves whole checkpoints of `keep` steps, and all that are newer than these.
void CheckpointFolder::remove_old(std::uint64_t step) const {
  std::set<std::uint64_t, std::greater<>> whole;  // a step may have been saved more than once
  for (const WholeCheckpoint& checkpoint : whole_checkpoints(path_)) whole.insert(checkpoint.step);
  const std::size_t keep = std::max<std::size_t>(options_.keep, 1);
  // The one that is written now is not whole yet: one more stays until it is.
  if (whole.size() <= keep) return;
  const std::uint64_t oldest = *std::next(whole.begin(), static_cast<std::ptrdiff_t>(keep - 1));
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const auto found = step_of(entry);
    if (found && *found < oldest && *found != step) fs::remove_all(entry.path(), ignored);
  }
}

std::string CheckpointFolder::file_of(std::uint64_t step, std::uint64_t id) const {
  return folder_of(path_, step) + "/" + text_of(FileName{axis_.rank(), axis_.size(), id});
}

void CheckpointFolder::save(std::uint64_t step, std::span<const TensorPart> parts,
                            const CheckpointTexts& texts) {
  const std::uint64_t id = begin(step);
  on_all_ranks(axis_, [&] {
    write_tensors(
        file_of(step, id), parts,
        {.id = id, .step = step, .rank = axis_.rank(), .ranks = axis_.size(), .texts = texts});
  });
}

void CheckpointFolder::start(std::uint64_t step, std::span<const TensorPart> parts,
                             const CheckpointTexts& texts) {
  const std::uint64_t id = begin(step);
  on_all_ranks(axis_, [&] {
    auto writing = std::make_unique<Writing>();
    std::size_t bytes = 0;
    for (const TensorPart& p : parts) {
      p.check();
      bytes += p.bytes();
    }
    writing->copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    writing->parts.assign(parts.begin(), parts.end());
    std::byte* to = writing->copy.get();
    for (TensorPart& p : writing->parts) {
      if (p.count > 0) std::memcpy(to, p.data, p.bytes());
      p.data = to;
      to += p.bytes();
    }
    FileNotes notes{
        .id = id, .step = step, .rank = axis_.rank(), .ranks = axis_.size(), .texts = texts};
    Writing& w = *writing;
    w.thread = std::thread([&w, path = file_of(step, id), notes = std::move(notes)] {
      try {
        write_tensors(path, w.parts, notes);
      } catch (...) {
        w.error = std::current_exception();
      }
      w.done = true;
    });
    writing_ = std::move(writing);
  });
}

void CheckpointFolder::wait() {
  if (!writing_) return;
  const std::unique_ptr<Writing> writing = std::move(writing_);
  writing->thread.join();
  if (writing->error) std::rethrow_exception(writing->error);
}

bool CheckpointFolder::idle() const { return !writing_ || writing_->done; }

void CheckpointFolder::refuse_unasked(const std::map<std::string, bool>& asked,
                                      const std::string& file) const {
  // All ranks have read the same names.
  std::vector<std::uint8_t> by_any;
  for (const auto& [name, is_asked] : asked) by_any.push_back(is_asked ? 1 : 0);
  if (by_any.empty()) return;
  axis_.run(call_of(Collective::all_reduce, by_any.data(), by_any.data(), by_any.size(),
                    DataType::uint8, ReduceKind::max));
  const auto unasked = std::ranges::find(by_any, 0);
  if (unasked == by_any.end()) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("the checkpoint of {} has a tensor '{}', and the job has none", file,
                          std::next(asked.begin(), unasked - by_any.begin())->first));
}

std::optional<std::uint64_t> CheckpointFolder::load(std::span<TensorPart> parts,
                                                    CheckpointTexts* texts) {
  wait();
  // Rank 0 says which there are: a folder that hosts share may show others less, for a moment.
  std::vector<WholeCheckpoint> whole;
  if (axis_.rank() == 0) whole = whole_checkpoints(path_);
  Agreement ranks(axis_);
  std::string damage;
  for (std::size_t i = 0;; ++i) {
    FileName name;
    std::uint64_t step = 0;
    if (i < whole.size()) {
      name = *file_name_of(fs::path(whole[i].files.front()).filename().string());
      step = whole[i].step;
    }
    const std::uint64_t id = ranks.largest(name.id);
    if (id == 0) break;
    step = ranks.largest(step);
    const auto count = static_cast<int>(ranks.largest(static_cast<std::uint64_t>(name.ranks)));
    std::vector<std::string> files;
    for (int r = 0; r < count; ++r) {
      files.push_back(folder_of(path_, step) + "/" + text_of(FileName{r, count, id}));
    }
    std::map<std::string, bool> asked;
    const auto error = gravest_error(axis_, [&] { asked = read_parts(files, parts, texts); });
    if (!error) {
      if (options_.all_tensors) refuse_unasked(asked, files.front());
      return step;
    }
    if (error->code() != ErrorCode::invalid_argument) throw *error;
    const std::string said = error->what();
    if (damage.empty()) damage = said;
    if (axis_.rank() == 0) {
      log().warn("the checkpoint of step {} is damaged, and the one before it is tried: {}", step,
                 said);
    }
  }
  if (damage.empty()) return std::nullopt;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("no checkpoint in {} is right; of the newest: {}", path_, damage));
}

}  // namespace tutti::parallel
