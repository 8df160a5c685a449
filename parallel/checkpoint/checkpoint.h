// Checkpoints: the state of a training job in files, which ranks write in parallel, and any other
// layout of ranks can load.
//
//     CheckpointFolder folder("run7", world);
//     for (each step) {
//       ...
//       if (step % 50 == 0) folder.save(step, parts, {{"loss", "2.31"}});
//     }
//     if (auto step = folder.load(parts, texts)) ...   // the newest one that is whole
//
// A checkpoint is a folder `step-0000000050` with a file of each rank (file.h). A rank's file gets
// its name when its bytes are on the disk. The checkpoint is whole when all of its files have
// names, so the last rename is the commit, and no rank has to tell another. A job that is killed at
// any time leaves the earlier checkpoints, and perhaps one that is not whole. Loading skips a
// checkpoint that is not whole, and one with a byte that has changed. What no job could load is not
// saved: before they write, the ranks compare what they have of each tensor.
//
// Functions are collective unless they say otherwise. One thread at a time calls them. They throw
// tutti::Error, the same on all ranks where all of them can go on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../axis.h"
#include "part.h"

namespace tutti::parallel {

using CheckpointTexts = std::map<std::string, std::string>;

struct CheckpointOptions {
  /// Steps whose checkpoints stay when a save begins (0 means 1); it removes older ones. When it
  /// has ended there is one more. Only what can be loaded counts: before the first removal, the
  /// ranks read those checkpoints that count and that this object has neither saved nor loaded.
  std::size_t keep = 2;
  /// Refuses a tensor of the checkpoint that no rank has asked for: a model of another size.
  bool all_tensors = true;
};

/// The files of a whole checkpoint.
struct WholeCheckpoint {
  std::uint64_t step = 0;
  std::vector<std::string> files;  // by rank
};

class CheckpointFolder {
 public:
  /// Makes the folder if there is none. `axis`: all ranks of the job; it outlives this.
  CheckpointFolder(std::string path, Axis& axis, CheckpointOptions options = {});
  /// Waits for a save that is under way; its error is logged.
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Writes this rank's parts, and returns when those of all ranks are on the disk. Of each tensor
  /// all elements have to be there, each from one rank: of ranks with copies only one passes them.
  /// `texts`: rank 0's are kept. Throws before anything is written or removed:
  /// Error(invalid_argument) for a part that cannot be, or a name or text that is not UTF-8;
  /// Error(mismatch), with a tensor and its ranks, if ranks have it with different types or shapes,
  /// two save an element, or nobody does. Throws Error(system) if a rank cannot write; then nothing
  /// of the checkpoint stays.
  void save(std::uint64_t step, std::span<const TensorPart> parts,
            const CheckpointTexts& texts = {});
  /// Copies the parts and returns; another thread writes the copy. The next save or load, wait()
  /// and the destructor wait for it. Throws as save() does, but that wait() has the error of a rank
  /// that cannot write; again nothing of the checkpoint stays.
  void start(std::uint64_t step, std::span<const TensorPart> parts,
             const CheckpointTexts& texts = {});
  /// Waits for what start() has begun on this rank, and throws its error. Does not communicate, so
  /// that it returns says nothing of other ranks.
  void wait();
  /// Whether nothing is under way. Does not communicate, and does not block.
  bool idle() const;

  /// Fills in the parts from the newest checkpoint that is whole and right, and returns its step;
  /// no step if there is none. Ranks may ask for any parts, whatever ranks have saved them.
  std::optional<std::uint64_t> load(std::span<TensorPart> parts, CheckpointTexts* texts = nullptr);

 private:
  struct New;
  struct Writing;
  /// Of a checkpoint: whether it can be loaded, and by what this rank's share of its files can be
  /// known again.
  struct Known {
    bool is_right = false;
    std::vector<std::pair<std::uintmax_t, std::filesystem::file_time_type>> share;
  };
  New begin(std::uint64_t step, std::span<const TensorPart> parts, const CheckpointTexts& texts);
  void remove_old(std::uint64_t step);
  std::vector<WholeCheckpoint> whole_on_rank_0() const;
  std::optional<WholeCheckpoint> of_rank_0(const std::vector<WholeCheckpoint>& whole,
                                           std::size_t i) const;
  std::vector<std::string> share_of(const WholeCheckpoint& checkpoint) const;
  void know(std::uint64_t id, std::span<const std::string> share, bool is_right);
  bool is_right(const WholeCheckpoint& checkpoint);
  /// Throws Error(mismatch), on all ranks, for a tensor that none of them has asked for.
  void refuse_unasked(const std::map<std::string, bool>& asked, const std::string& file) const;

  const std::string path_;
  Axis& axis_;
  const CheckpointOptions options_;
  std::map<std::uint64_t, Known> known_;  // by id
  std::unique_ptr<Writing> writing_;
};

/// The whole checkpoints of a folder, the newest first. A checkpoint is whole when all of its files
/// are there. Does not read them, nor communicate.
std::vector<WholeCheckpoint> whole_checkpoints(const std::string& path);

/// Fills in parts from the files, of Tutti's or of other programs. Throws Error(invalid_argument)
/// for a file that is not right, for files of different checkpoints, and where files do not have
/// each element of a part once; Error(mismatch) for a tensor that is missing, or of another type or
/// shape. Tensors of types that Tutti does not have are no problem until a part asks for them.
/// Returns, for each tensor of the files, whether a part has asked for it. Does not
/// communicate.
std::map<std::string, bool> read_parts(std::span<const std::string> files,
                                       std::span<TensorPart> parts,
                                       CheckpointTexts* texts = nullptr);

/// Writes a checkpoint as one file of whole tensors, for other programs. `name_of` may rename
/// tensors, or leave them out (""). Does not communicate; takes memory for all tensors.
void export_checkpoint(const WholeCheckpoint& checkpoint, const std::string& path,
                       const std::function<std::string(const std::string&)>& name_of = {});

}  // namespace tutti::parallel
