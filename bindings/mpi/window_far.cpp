#include "bindings/mpi/window_far.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "bindings/mpi/window_question.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

constexpr std::size_t kMostOnTheWay = 64;  // questions of one call

/// What one question is about.
struct Share {
  std::vector<Run> runs;
  std::size_t at = 0, bytes = 0;  // of the packed data
};

/// Calls take(share) for all data of the place. No element is in two of them, nor a pair of `unit`
/// bytes.
template <class Take>
void for_each_share(const FarPlace& place, const Layout& layout, std::size_t unit, Take&& take) {
  const std::size_t most = kMostData / unit * unit;
  Share share;
  const auto go = [&] {
    if (share.bytes == 0) return;
    take(share);
    share = {{}, share.at + share.bytes, 0};
  };
  layout.for_each_run(
      place.count, place.type.extent(), 0, place.count * place.type.size(),
      [&](Element element, MPI_Aint offset, MPI_Count length) {
        const std::size_t size = layout.keeps_elements() ? properties(element).size : 1;
        while (length > 0) {
          std::size_t n =
              std::min<std::size_t>(static_cast<std::size_t>(length), most - share.bytes);
          n = n / size * size;
          if (n == 0 || (share.runs.size() >= kMostRuns && share.bytes % unit == 0)) {
            go();
            continue;
          }
          share.runs.push_back({place.offset + offset, static_cast<std::uint32_t>(n), element, {}});
          share.bytes += n;
          offset += static_cast<MPI_Aint>(n);
          length -= static_cast<MPI_Count>(n);
        }
      });
  go();
}

/// Questions of one call, of which some are on the way at once.
class Asking {
 public:
  Asking(Win& win, int rank, const char* what)
      : mail_(world().mail()), process_(win.comm->group->at(rank)), rank_(rank), what_(what) {
    question_.window = win.comm->context;
    question_.rank = win.rank();
  }
  Question& question() { return question_; }

  /// `to`: where the data of the answer go.
  void ask(std::span<const Run> runs, std::span<const std::byte> data,
           std::span<const std::byte> more, std::span<std::byte> to) {
    question_.runs = static_cast<std::uint32_t>(runs.size());
    std::vector<std::byte> text;
    text.reserve(sizeof question_ + runs.size_bytes() + data.size() + more.size());
    append(text, std::span<const Question>(&question_, 1));
    append(text, runs);
    append(text, data);
    append(text, more);
    if (on_the_way_.size() >= kMostOnTheWay) await_one();
    const Mail::Lock lock(mail_);
    on_the_way_.push_back({mail_.ask(process_, std::move(text)), to});
  }
  void await_all() {
    while (!on_the_way_.empty()) await_one();
  }

 private:
  struct OnTheWay {
    std::shared_ptr<Mail::Answer> answer;
    std::span<std::byte> to;
  };
  void await_one() {
    const OnTheWay first = std::move(on_the_way_.front());
    on_the_way_.pop_front();
    mail_.wait(what_, [&] { return first.answer->is_here; });
    const std::span<const std::byte> data = first.answer->data;
    Code error = MPI_ERR_INTERN;
    if (data.size() >= sizeof error) std::memcpy(&error, data.data(), sizeof error);
    if (error == MPI_SUCCESS && data.size() != sizeof error + first.to.size())
      error = MPI_ERR_INTERN;
    if (error != MPI_SUCCESS) {
      fail(error_class_of(error),
           "rank {}, on another host, has refused: its window has ended, or has no such memory",
           rank_);
    }
    if (!first.to.empty())
      std::memcpy(first.to.data(), data.data() + sizeof error, first.to.size());
  }

  Mail& mail_;
  const int process_, rank_;
  const char* const what_;
  Question question_;
  std::deque<OnTheWay> on_the_way_;
};

}  // namespace

void far_read(const FarPlace& place, std::byte* packed) {
  Asking asking(place.win, place.rank, "MPI_Get");
  for_each_share(place, place.type.layout(), 1, [&](const Share& share) {
    asking.ask(share.runs, {}, {}, {packed + share.at, share.bytes});
  });
  asking.await_all();
}

void far_write(const FarPlace& place, const std::byte* packed) {
  Asking asking(place.win, place.rank, "MPI_Put");
  asking.question().wish = Wish::write;
  for_each_share(place, place.type.layout(), 1, [&](const Share& share) {
    asking.ask(share.runs, {packed + share.at, share.bytes}, {}, {});
  });
  asking.await_all();
}

void far_combine(const FarPlace& place, MPI_Op op, const std::byte* packed, std::byte* before) {
  const Type* const pairs = pairs_of(place.type);
  Asking asking(place.win, place.rank, "a one-sided reduction");
  Question& question = asking.question();
  question.wish = Wish::combine;
  question.wants_before = before != nullptr ? 1 : 0;
  question.op = operators().number(op);
  question.pairs = pairs == nullptr ? kNoPairs : types().number(handle_of_pairs(*pairs->pair()));
  const std::size_t unit = pairs == nullptr ? 1 : static_cast<std::size_t>(pairs->size());
  for_each_share(place, place.type.typed_layout(), unit, [&](const Share& share) {
    std::span<const std::byte> data;  // MPI_NO_OP has none
    std::span<std::byte> to;
    if (packed != nullptr) data = {packed + share.at, share.bytes};
    if (before != nullptr) to = {before + share.at, share.bytes};
    asking.ask(share.runs, data, {}, to);
  });
  asking.await_all();
}

void far_swap(const FarPlace& place, const std::byte* packed, const std::byte* compare,
              std::byte* before) {
  Asking asking(place.win, place.rank, "MPI_Compare_and_swap");
  asking.question().wish = Wish::swap;
  for_each_share(place, place.type.layout(), 1, [&](const Share& share) {
    asking.ask(share.runs, {packed, share.bytes}, {compare, share.bytes}, {before, share.bytes});
  });
  asking.await_all();
}

void far_sign(Win& win, int rank, FarSign sign) {
  Asking asking(win, rank, "the epochs of a window");
  asking.question().wish = Wish::sign;
  asking.question().sign = sign;
  asking.ask({}, {}, {}, {});
  asking.await_all();
}

}  // namespace tutti::mpi
