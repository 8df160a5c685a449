// See checkpoint.h: from parts to files, and which of the old files stay.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/log_line.h"
#include "parallel/agreement.h"
#include "parallel/checkpoint/agree.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/file.h"
#include "parallel/checkpoint/names.h"

namespace tutti::parallel {
namespace {

namespace fs = std::filesystem;

std::uint64_t random_id() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32 | random()) | 1;  // not 0
}

}  // namespace

/// What one rank writes, and the files of all of them.
struct CheckpointFolder::New {
  SavedFiles files;
  FileNotes notes;
  std::unique_ptr<NewFile> own;
};

/// A copy of the parts, and the thread that writes it.
struct CheckpointFolder::Writing {
  New to;
  std::vector<TensorPart> parts;
  std::unique_ptr<std::byte[]> copy;
  std::exception_ptr error;
  FileStamp stamp;  // of the file, once it is written
  std::atomic<bool> done{false};
  std::thread thread;

  void write() {
    try {
      if (write_tensors(*to.own, parts, to.notes)) {
        stamp = stamp_of(to.own->path());
      } else {
        log_warning(fmt::format(
            "the checkpoint of step {} does not stay: another rank could not write its file",
            to.notes.step));
      }
    } catch (...) {
      error = std::current_exception();
      // It can never be whole, so nobody's file stays.
      to.files.remove();
    }
    to.own.reset();
    done = true;
  }
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
    log_error(fmt::format("a checkpoint was not written: {}", e.what()));
  }
}

/// All ranks agree on the checkpoint that they write now, and that it can be loaded; old ones go.
/// All ranks have created their files when one begins to write: who fails finds them all.
CheckpointFolder::New CheckpointFolder::begin(std::uint64_t step, std::span<const TensorPart> parts,
                                              const CheckpointTexts& texts) {
  std::vector<SavedPart> own;
  on_all_ranks(axis_, [&] {
    wait();
    check_writable(parts, texts);
    for (const TensorPart& p : parts) own.push_back({axis_.world_rank(axis_.rank()), p});
  });
  Agreement ranks(axis_);
  if (!ranks.same(step)) {
    throw Error(
        ErrorCode::mismatch,
        fmt::format("ranks save checkpoints of different steps; this rank saves step {}", step));
  }
  agree_on_whole(axis_, own);
  remove_old(step);
  New to{
      .files = {.folder = step_folder(path_, step), .ranks = axis_.size()}, .notes = {}, .own = {}};
  on_all_ranks(axis_, [&] {
    if (axis_.rank() != 0) return;
    std::error_code error;
    fs::create_directories(to.files.folder, error);
    if (error) {
      throw Error(ErrorCode::system,
                  fmt::format("cannot make the folder {}: {}", to.files.folder, error.message()));
    }
    sync_folder(path_);
    to.files.id = random_id();
  });
  to.files.id = ranks.largest(to.files.id);
  to.notes = {
      .id = to.files.id, .step = step, .rank = axis_.rank(), .ranks = axis_.size(), .texts = texts};
  const auto error =
      gravest_error(axis_, [&] { to.own = std::make_unique<NewFile>(to.files.of(axis_.rank())); });
  if (error) {
    if (axis_.rank() == 0) to.files.remove();
    throw *error;
  }
  return to;
}

/// Leaves the checkpoints of `keep` steps that can be loaded, and all that are newer than these.
void CheckpointFolder::remove_old(std::uint64_t step) {
  // The one that is written now is not whole yet: one more stays until it is.
  const std::size_t keep = std::max<std::size_t>(options_.keep, 1);
  std::vector<WholeCheckpoint> whole = whole_on_rank_0();
  std::set<std::uint64_t> steps;  // a step may have been saved more than once
  for (const WholeCheckpoint& checkpoint : whole) steps.insert(checkpoint.step);
  if (steps.size() <= keep) whole.clear();
  steps.clear();
  for (std::size_t i = 0; steps.size() < keep; ++i) {
    const auto checkpoint = of_rank_0(whole, i);
    if (!checkpoint) return;
    if (!steps.contains(checkpoint->step) && is_right(*checkpoint)) steps.insert(checkpoint->step);
  }
  if (axis_.rank() != 0) return;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const auto found = step_of(entry);
    if (found && *found < *steps.begin() && *found != step) fs::remove_all(entry.path(), ignored);
  }
}

void CheckpointFolder::save(std::uint64_t step, std::span<const TensorPart> parts,
                            const CheckpointTexts& texts) {
  const New to = begin(step, parts, texts);
  const auto error = gravest_error(axis_, [&] {
    if (write_tensors(*to.own, parts, to.notes)) return;
    throw Error(ErrorCode::system,
                fmt::format("{} was removed while it was written", to.own->path()));
  });
  if (error) {
    if (axis_.rank() == 0) to.files.remove();
    throw *error;
  }
  known_[to.notes.id] = {.is_right = true, .share = {stamp_of(to.own->path())}};
}

void CheckpointFolder::start(std::uint64_t step, std::span<const TensorPart> parts,
                             const CheckpointTexts& texts) {
  auto writing = std::make_unique<Writing>();
  Writing& w = *writing;
  w.to = begin(step, parts, texts);
  const auto error = gravest_error(axis_, [&] {
    std::size_t bytes = 0;
    for (const TensorPart& p : parts) bytes += p.bytes();
    w.copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    w.parts.assign(parts.begin(), parts.end());
    std::byte* to = w.copy.get();
    for (TensorPart& p : w.parts) {
      if (p.count > 0) std::memcpy(to, p.data, p.bytes());
      p.data = to;
      to += p.bytes();
    }
    w.thread = std::thread([&w] { w.write(); });
    writing_ = std::move(writing);
  });
  if (!error) return;
  if (axis_.rank() == 0) w.to.files.remove();
  throw *error;
}

void CheckpointFolder::wait() {
  if (!writing_) return;
  const std::unique_ptr<Writing> writing = std::move(writing_);
  writing->thread.join();
  if (writing->error) std::rethrow_exception(writing->error);
  known_[writing->to.notes.id] = {.is_right = true, .share = {writing->stamp}};
}

bool CheckpointFolder::idle() const { return !writing_ || writing_->done; }

}  // namespace tutti::parallel
