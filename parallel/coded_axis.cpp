#include "parallel/coded_axis.h"

#include <fmt/format.h>
#include <tutti/comm/call.h>
#include <tutti/core/background.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "core/convert.h"
#include "core/error.h"
#include "parallel/weights/planes.h"

namespace tutti::parallel {
namespace {

// Bytes of a piece, of each rank; of many ranks the pieces together take so much.
constexpr std::size_t kMostPiece = std::size_t{512} << 10;
constexpr std::size_t kLeastPiece = std::size_t{128} << 10;
constexpr std::size_t kAllPieces = std::size_t{16} << 20;
constexpr std::size_t kHeader = 16;   // of a piece: how long the next one is, and its own form
constexpr std::size_t kRound = 4096;  // lengths on the way, so that calls repeat
// Of pieces in their order, two travel, and two more are coded; one that has come is decoded.
constexpr std::size_t kCoded = 4, kCome = 3;
enum class PieceForm : std::uint64_t { plain = 0, planes = 1 };
/// Coding is to gain so much in a measurement.
constexpr double kGain = 1.05;
/// A piece that keeps more of its size, by a sample, travels as it is.
constexpr double kWorthCoding = 0.97;

std::size_t rounded(std::size_t bytes) { return (bytes + kRound - 1) / kRound * kRound; }

std::uint64_t word(const std::byte* piece, std::size_t number) {
  std::uint64_t value = 0;
  std::memcpy(&value, piece + number * sizeof value, sizeof value);
  return value;
}
void set_word(std::byte* piece, std::size_t number, std::uint64_t value) {
  std::memcpy(piece + number * sizeof value, &value, sizeof value);
}

}  // namespace

/// What coded calls share: a call is over before the next one begins.
struct CodedAxis::Stage {
  explicit Stage(int ranks)
      : piece(std::clamp(kAllPieces / static_cast<std::size_t>(ranks), kLeastPiece, kMostPiece)),
        most(rounded(kHeader + piece)) {
    for (auto& buffer : coded) buffer.resize(most);
    for (auto& buffer : come) buffer.resize(most * static_cast<std::size_t>(ranks));
  }
  const std::size_t piece, most;  // bytes, as they are and on the way
  weights::PlaneCoder coder;
  std::vector<std::byte> memory;  // of the coder
  std::array<std::vector<std::byte>, kCoded> coded;
  std::array<std::vector<std::byte>, kCome> come;  // of all ranks that send
  Coded sum;
};

/// A collective that the axis' thread starts, or carries out.
class CodedAxis::Queued {
 public:
  Queued(const Call& call, bool coded) : kept(call), is_coded(coded) {}

  const KeptCall kept;
  const bool is_coded;

  /// It is over, or goes on as `future`.
  void begun(Future future, std::exception_ptr error) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      future_ = std::move(future);
      error_ = std::move(error);
      begun_ = true;
      callbacks.swap(callbacks_);
      changed_.notify_all();
    }
    for (const auto& callback : callbacks) tell(callback);
  }
  bool ready() {
    const std::lock_guard lock(mutex_);
    return begun_ && (!future_.valid() || future_.ready());
  }
  void on_ready(const std::function<void()>& callback) {
    {
      const std::lock_guard lock(mutex_);
      if (!begun_) return callbacks_.push_back(callback);
    }
    tell(callback);
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_; });  // calls of the communicator end by its deadline
    if (error_) std::rethrow_exception(error_);
    lock.unlock();
    if (future_.valid()) future_.wait();
  }

 private:
  void tell(const std::function<void()>& callback) {
    future_.valid() ? future_.on_ready(callback) : callback();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  Future future_;
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;  // until it has begun
};

CodedAxis::CodedAxis(Communicator& comm, AxisName name, Choice choice)
    : Axis(comm.rank(), comm.size(), std::move(name)),
      comm_(comm.split(0, comm.rank())),
      choice_(choice) {
  codes_ = choice_.when == When::always || (choice_.when == When::measured && measure());
  thread_ = start_thread("tutti-coded", [this] { work(); });
}

CodedAxis::~CodedAxis() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

CodedAxis::Coded CodedAxis::coded() const {
  const std::lock_guard lock(mutex_);
  return coded_;
}

void CodedAxis::throw_failure() const {
  if (const std::optional<Error> error = comm_.error()) throw *error;
}

bool CodedAxis::goes_coded(const Call& call) const {
  const bool moves =
      call.collective == Collective::all_gather || call.collective == Collective::broadcast;
  return codes_ && size() > 1 && moves && call.count > 0 &&
         weights::PlaneCoder::serves(call.type) &&
         call.count * size_of(call.type) >= choice_.least_bytes;
}

std::unique_ptr<Pending::Work> CodedAxis::begin(const Call& call) {
  struct OfFuture final : Pending::Work {
    explicit OfFuture(Future f) : future(std::move(f)) {}
    bool ready() override { return future.ready(); }
    void wait() override { future.wait(); }
    bool on_ready(const std::function<void()>& callback) override {
      future.on_ready(callback);
      return true;
    }
    Future future;
  };
  struct OfQueued final : Pending::Work {
    explicit OfQueued(std::shared_ptr<Queued> q) : queued(std::move(q)) {}
    bool ready() override { return queued->ready(); }
    void wait() override { queued->wait(); }
    bool on_ready(const std::function<void()>& callback) override {
      queued->on_ready(callback);
      return true;
    }
    std::shared_ptr<Queued> queued;
  };
  const std::lock_guard lock(mutex_);
  const bool coded = goes_coded(call);
  // A message waits for no collective.
  const bool now = call.collective == Collective::send_recv || (queue_.empty() && !is_busy_);
  if (!coded && now) return std::make_unique<OfFuture>(comm_.start(call));
  auto queued = std::make_shared<Queued>(call, coded);
  queue_.push_back(queued);
  changed_.notify_all();
  return std::make_unique<OfQueued>(std::move(queued));
}

void CodedAxis::run_now(const Call& call) {
  const auto is_alone = [&] {
    const std::lock_guard lock(mutex_);
    return queue_.empty() && !is_busy_;
  };
  if (!goes_coded(call) && is_alone()) return comm_.run(call);
  begin(call)->wait();
}

void CodedAxis::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Queued> next = std::move(queue_.front());
    queue_.pop_front();
    is_busy_ = true;
    lock.unlock();
    Future future;
    std::exception_ptr error;
    try {
      if (next->is_coded) {
        run_coded(next->kept.call());
      } else {
        future = comm_.start(next->kept.call());
      }
    } catch (...) {
      error = std::current_exception();
    }
    next->begun(std::move(future), std::move(error));
    lock.lock();
    is_busy_ = false;
  }
}

/// A coded call on its way.
class CodedAxis::Pieces {
 public:
  Pieces(Communicator& comm, const Call& call, Stage& stage)
      : comm_(comm),
        call_(call),
        stage_(stage),
        bytes_(call.count * size_of(call.type)),
        count_((bytes_ + stage.piece - 1) / stage.piece),
        gathers_(call.collective == Collective::all_gather) {
    if (gathers_ || comm.rank() == call.root) own_ = static_cast<const std::byte*>(call.in);
    for (int r = 0; r < comm.size(); ++r) {
      if (gathers_ || r == call.root) sources_.push_back(r);
    }
  }

  void run() {
    encode(0);
    encode(1);
    std::array<std::uint64_t, 2> first{own_ != nullptr ? coded_length_[0] : 0,
                                       own_ != nullptr ? coded_length_[1] : 0};
    comm_.all_reduce(first.data(), first.data(), first.size(), DataType::uint64, ReduceKind::max);
    encode(2);
    start(0, checked(first[0]));
    if (count_ > 1) length_[1] = checked(first[1]);
    for (std::size_t k = 0; k < count_; ++k) {
      // A piece follows at once: its length has come with the one before last.
      encode(k + 3);
      if (k + 1 < count_) start(k + 1, length_[(k + 1) % kCome]);
      if (k > 0) decode(k - 1);
      travelling_.front().wait();
      travelling_.pop_front();
      std::uint64_t next = 0;
      for (std::size_t s = 0; s < sources_.size(); ++s) next = std::max(next, word(come(k, s), 0));
      if (k + 2 < count_) length_[(k + 2) % kCome] = checked(next);
    }
    decode(count_ - 1);
    copy_own();
  }

  /// After an error: no memory is given up that a call under way may use.
  void end() noexcept {
    for (Future& future : travelling_) {
      try {
        future.wait();
      } catch (const Error&) {  // of the call, which is thrown already
      }
    }
  }

 private:
  std::size_t plain_bytes(std::size_t k) const {
    return std::min(stage_.piece, bytes_ - k * stage_.piece);
  }
  /// Where piece `k` of a rank's part belongs.
  std::byte* place_of(int rank, std::size_t k) const {
    const std::size_t part = gathers_ ? static_cast<std::size_t>(rank) * bytes_ : 0;
    return static_cast<std::byte*>(call_.out) + part + k * stage_.piece;
  }
  /// Piece `k` of a source, as it has come.
  const std::byte* come(std::size_t k, std::size_t source) const {
    return stage_.come[k % kCome].data() + source * length_[k % kCome];
  }

  /// A length on the way; all ranks take the same.
  std::size_t checked(std::uint64_t said) const {
    if (said >= kHeader && said <= stage_.most && said % kRound == 0) return said;
    throw Error(ErrorCode::mismatch,
                fmt::format("a piece of a coded {} is announced with {} bytes, and {} are the "
                            "most: have all ranks the same Tutti, and make the same call?",
                            name(call_.collective), said, stage_.most));
  }

  void encode(std::size_t k) {
    if (own_ == nullptr || k >= count_) return;
    const std::span<const std::byte> plain(own_ + k * stage_.piece, plain_bytes(k));
    std::byte* const to = stage_.coded[k % kCoded].data();
    auto form = PieceForm::plain;
    std::span<const std::byte> content = plain;
    stage_.memory.clear();
    if (weights::PlaneCoder::estimate(call_.type, plain) < kWorthCoding &&
        stage_.coder.encode(call_.type, plain, stage_.memory)) {
      form = PieceForm::planes;
      content = stage_.memory;
    }
    set_word(to, 1, static_cast<std::uint64_t>(form) << 32 | content.size());
    std::memcpy(to + kHeader, content.data(), content.size());
    coded_length_[k % kCoded] = rounded(kHeader + content.size());
    stage_.sum.plain += plain.size();
    stage_.sum.coded += kHeader + content.size();
  }

  void start(std::size_t k, std::size_t length) {
    length_[k % kCome] = length;
    Call call;
    call.collective = call_.collective;
    call.root = call_.root;
    call.label = call_.label;
    call.timeout = call_.timeout;
    call.count = length;
    call.in = call.out = stage_.come[k % kCome].data();
    if (own_ != nullptr) {
      std::byte* const own = stage_.coded[k % kCoded].data();
      set_word(own, 0, k + 2 < count_ ? coded_length_[(k + 2) % kCoded] : 0);
      call.in = own;
    }
    travelling_.push_back(comm_.start(call));
  }

  void decode(std::size_t k) {
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      if (sources_[s] == comm_.rank()) continue;
      const std::byte* const from = come(k, s);
      const std::span<std::byte> to(place_of(sources_[s], k), plain_bytes(k));
      const std::uint64_t said = word(from, 1);
      const auto form = static_cast<PieceForm>(said >> 32);
      const std::size_t size = said & 0xffff'ffff;
      const bool fits = size <= length_[k % kCome] - kHeader;
      if (fits && form == PieceForm::planes) {
        stage_.coder.decode(call_.type, {from + kHeader, size}, to);
      } else if (form == PieceForm::plain && fits && size == to.size()) {
        std::memcpy(to.data(), from + kHeader, size);
      } else {
        throw Error(ErrorCode::mismatch,
                    fmt::format("a piece of rank {} in a coded {} is damaged: its header says "
                                "{:x}, and it stands for {} bytes",
                                sources_[s], name(call_.collective), said, to.size()),
                    sources_[s]);
      }
    }
  }

  void copy_own() const {
    if (own_ == nullptr) return;
    std::byte* const out = place_of(comm_.rank(), 0);
    if (out != own_) std::memcpy(out, own_, bytes_);
  }

  Communicator& comm_;
  const Call& call_;
  Stage& stage_;
  const std::size_t bytes_, count_;  // of a rank's part; pieces
  const bool gathers_;
  const std::byte* own_ = nullptr;  // what this rank sends
  std::vector<int> sources_;        // ranks that send
  std::array<std::size_t, kCoded> coded_length_{};
  std::array<std::size_t, kCome> length_{};  // on the way
  std::deque<Future> travelling_;
};

void CodedAxis::run_coded(const Call& call) {
  if (stage_ == nullptr) stage_ = std::make_unique<Stage>(size());
  Pieces pieces(comm_, call, *stage_);
  try {
    pieces.run();
  } catch (const std::exception& e) {
    comm_.abort(fmt::format("rank {} failed in a coded call: {}", rank(), e.what()));
    pieces.end();
    throw;
  }
  const std::lock_guard lock(mutex_);
  coded_ = stage_->sum;
}

/// Collective: whether an all-gather of normal weights takes less time coded.
bool CodedAxis::measure() {
  if (size() == 1) return false;
  constexpr std::size_t kCount = std::size_t{2} << 20;
  std::vector<float> normal(kCount);
  std::minstd_rand random(static_cast<unsigned>(rank()) + 1);
  std::normal_distribution<float> values(0, 0.02f);
  for (std::size_t i = 0; i < kCount; ++i)
    normal[i] = i < 65536 ? values(random) : normal[i - 65536];
  std::vector<std::byte> in(kCount * 2), out(in.size() * static_cast<std::size_t>(size()));
  convert(normal.data(), DataType::float32, in.data(), DataType::bfloat16, kCount);
  const Call call =
      call_of(Collective::all_gather, in.data(), out.data(), kCount, DataType::bfloat16);
  std::array<double, 2> least{std::numeric_limits<double>::max(),
                              std::numeric_limits<double>::max()};
  for (int turn = 0; turn < 4; ++turn) {
    const bool coded = turn % 2 == 1;
    comm_.barrier();
    const auto start = Clock::now();
    if (coded) {
      run_coded(call);
    } else {
      comm_.run(call);
    }
    double took = std::chrono::duration<double>(Clock::now() - start).count();
    comm_.all_reduce(&took, &took, 1, DataType::float64, ReduceKind::max);
    double& of = least[coded ? 1 : 0];
    of = std::min(of, took);
  }
  stage_->sum = coded_ = {};
  return least[1] * kGain < least[0];
}

}  // namespace tutti::parallel
