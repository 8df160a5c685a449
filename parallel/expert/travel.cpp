// Rows on their way to the experts and back: a wave for each expert of a rank.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/in_flight.h"

namespace tutti::parallel::expert {

std::byte* ExpertParallel::room(Buffer& buffer, std::size_t rows) {
  if (static_cast<double>(rows) * static_cast<double>(shape_.width) > kMostElements) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} rows of {} elements are too many", what_, rows, shape_.width));
  }
  // On a GPU a row at least: there an address tells of which memory a call is.
  const std::size_t bytes =
      std::max<std::size_t>(rows, axis_.device().is_gpu() ? 1 : 0) * row_bytes_;
  if (buffer.size() < bytes) {
    buffer.reset();  // before the next one is there
    buffer = memory_.allocate(bytes);
  }
  return buffer.data();
}

void ExpertParallel::fill_wave(const Saved& saved, std::size_t wave, const Places& places,
                               const Fill& fill) const {
  const Saved::Wave& w = saved.waves_[wave];
  const auto self = static_cast<std::size_t>(axis_.rank());
  // What a rank sends to itself is written where it arrives.
  const auto before = [&](const std::vector<std::size_t>& rows) {
    return std::accumulate(rows.begin(), rows.begin() + axis_.rank(), std::size_t{0});
  };
  const std::size_t own = w.sent_at + before(w.sent), own_end = own + w.sent[self];
  const std::size_t arrives = w.received_at + before(w.received);
  const std::size_t end = w.sent_at + std::accumulate(w.sent.begin(), w.sent.end(), std::size_t{0});
  const auto fill_rows = [&](std::size_t first, std::size_t last, std::byte* rows) {
    if (first < last) fill(first, last - first, rows);
  };
  fill_rows(w.sent_at, own, places.sent + w.sent_at * row_bytes_);
  fill_rows(own, own_end, places.arrived + arrives * row_bytes_);
  fill_rows(own_end, end, places.sent + own_end * row_bytes_);
}

LayerMath::Chosen ExpertParallel::rows_of_tokens(const Saved& saved, std::size_t first,
                                                 std::size_t count) const {
  return {shape_.type, shape_.width, std::span(saved.token_of_).subspan(first, count), 0,
          saved.tokens_};
}

void ExpertParallel::start_wave(InFlight& in_flight, const Saved& saved, std::size_t wave,
                                bool back, const Places& places) {
  const Saved::Wave& w = saved.waves_[wave];
  const auto elements = [&](std::vector<std::size_t> rows) {
    for (std::size_t& count : rows) count *= shape_.width;
    return rows;
  };
  std::vector<std::size_t> sent = elements(w.sent), received = elements(w.received);
  std::vector<std::size_t> sent_at, received_at;
  if (!back) {
    // The rank's own rows are there, and leave a gap.
    const auto offsets = [](const std::vector<std::size_t>& counts) {
      std::vector<std::size_t> at(counts.size());
      std::exclusive_scan(counts.begin(), counts.end(), at.begin(), std::size_t{0});
      return at;
    };
    sent_at = offsets(sent), received_at = offsets(received);
    const auto self = static_cast<std::size_t>(axis_.rank());
    sent[self] = received[self] = 0;
  }
  // Without rows it stays where the memory begins: behind the last row is no memory of the device,
  // so the call would not be one on the device.
  const auto first_row = [&](std::byte* rows, std::size_t at, const std::vector<std::size_t>& of) {
    const bool has_rows = std::ranges::any_of(of, [](std::size_t count) { return count > 0; });
    return has_rows ? rows + at * row_bytes_ : rows;
  };
  std::byte* const here = first_row(places.sent, w.sent_at, w.sent);
  std::byte* const there =
      first_row(back ? places.results : places.arrived, w.received_at, w.received);
  Call call =
      call_of(Collective::all_to_all_v, back ? there : here, back ? here : there, 0, shape_.type);
  call.in_counts = back ? received : sent;
  call.out_counts = back ? sent : received;
  call.in_offsets = back ? received_at : sent_at;
  call.out_offsets = back ? sent_at : received_at;
  in_flight.add(axis_, call);
}

void ExpertParallel::travel(const Saved& saved, const Places& places, const Fill& fill,
                            const Work& work) {
  const bool overlaps = options_.overlap && local_ > 1;
  InFlight there(what_, saved.label_, overlaps), back(what_, saved.label_, overlaps);
  const auto dispatch = [&](std::size_t wave) {
    fill_wave(saved, wave, places, fill);
    start_wave(there, saved, wave, false, places);
  };
  or_abort({&axis_}, what_, [&] {
    for (std::size_t wave = 0; wave < local_ && overlaps; ++wave) dispatch(wave);
    for (std::size_t wave = 0; wave < local_; ++wave) {
      overlaps ? there.wait(wave) : dispatch(wave);
      const std::size_t count = saved.received_[wave];
      if (count > 0) work(wave, saved.waves_[wave].received_at, count);
      start_wave(back, saved, wave, true, places);
    }
    back.wait();
  });
}

void ExpertParallel::sum_for_tokens(const Saved& saved, const std::byte* rows,
                                    std::span<const double> factors, void* to) const {
  math().sum_chosen({shape_.type, shape_.width, saved.row_of_, 0, saved.choice_of_.size()},
                    shape_.top_k, factors, rows, to);
}

}  // namespace tutti::parallel::expert
