// Partitioned messages: a part is there when it has come, and not before.
#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/bindings/mpi/cases/cases.h"

namespace tutti::test {
namespace {

int right() { return (rank() + 1) % size(); }
int left() { return (rank() + size() - 1) % size(); }

bool has_arrived(MPI_Request receive, int part) {
  int flag = -1;
  MPI_Parrived(receive, part, &flag);
  EXPECT(flag == 0 || flag == 1);
  return flag == 1;
}
/// Within 20 s.
bool arrives(MPI_Request receive, int part) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!has_arrived(receive, part)) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

struct Pair {
  MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
  void start() {
    MPI_Start(&receive);
    MPI_Start(&send);
  }
  void wait(MPI_Status* of_receive = MPI_STATUS_IGNORE) {
    EXPECT(MPI_Wait(&send, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    EXPECT(MPI_Wait(&receive, of_receive) == MPI_SUCCESS);
  }
  void free() {
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
  }
};

Pair pair_of(std::vector<int>& out, int out_parts, std::vector<int>& in, int in_parts, int tag) {
  Pair pair;
  const int n = static_cast<int>(out.size());
  MPI_Psend_init(out.data(), out_parts, n / out_parts, MPI_INT, right(), tag, MPI_COMM_WORLD,
                 MPI_INFO_NULL, &pair.send);
  MPI_Precv_init(in.data(), in_parts, n / in_parts, MPI_INT, left(), tag, MPI_COMM_WORLD,
                 MPI_INFO_NULL, &pair.receive);
  return pair;
}

MPI_CASE(APartArrivesBeforeTheOthersAndOnlyWithItsData) {
  for (const int each : {1, 513, 40000}) {
    std::vector<int> out(static_cast<std::size_t>(4 * each));
    std::vector<int> in(out.size());
    Pair pair = pair_of(out, 4, in, 4, 7);
    for (int round = 0; round < 3; ++round) {
      std::ranges::fill(in, -1);
      std::ranges::copy(data(rank(), out.size(), round), out.begin());
      const std::vector<int> expected = data(left(), in.size(), round);
      pair.start();
      std::vector<int> seen;
      for (const int part : {2, 0, 3, 1}) {
        MPI_Pready(part, pair.send);
        EXPECT(arrives(pair.receive, part));
        seen.push_back(part);
        for (int p = 0; p < 4; ++p) {
          if (std::ranges::find(seen, p) != seen.end()) {
            const auto from = static_cast<std::ptrdiff_t>(p * each);
            EXPECT(
                std::equal(in.begin() + from, in.begin() + from + each, expected.begin() + from));
          }
        }
        int flag = -1;
        MPI_Barrier(MPI_COMM_WORLD);  // nobody has said more than this rank's neighbor
        if (seen.size() < 4) {
          for (int p = 0; p < 4; ++p) {
            const bool is_ready = std::ranges::find(seen, p) != seen.end();
            EXPECT(has_arrived(pair.receive, p) == is_ready);
          }
          MPI_Status status;
          EXPECT(MPI_Request_get_status(pair.receive, &flag, &status) == MPI_SUCCESS && flag == 0);
        }
        MPI_Barrier(MPI_COMM_WORLD);
      }
      MPI_Status status;
      pair.wait(&status);
      EXPECT(in == expected);
      EXPECT(status.MPI_SOURCE == left() && status.MPI_TAG == 7);
      EXPECT(count_of(status) == 4 * each);
    }
    pair.free();
  }
}

MPI_CASE(TheTwoSidesOfAPartitionedMessageCutItAsTheyLike) {
  for (const auto& [out_parts, in_parts] : {std::pair{4, 2}, {2, 4}, {1, 3}, {3, 1}, {6, 4}}) {
    std::vector<int> out(12 * 31);
    std::vector<int> in(out.size(), -1);
    Pair pair = pair_of(out, out_parts, in, in_parts, 8);
    std::ranges::copy(data(rank(), out.size(), out_parts), out.begin());
    pair.start();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int said = 0; said < out_parts; ++said) {
      // A part of the receive is there when all that reaches into it was said, and no earlier.
      for (int p = 0; p < in_parts; ++p) {
        const bool is_whole = (p + 1) * out_parts <= said * in_parts;
        if (is_whole) EXPECT(arrives(pair.receive, p));
        EXPECT(has_arrived(pair.receive, p) == is_whole);
      }
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Pready(said, pair.send);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    pair.wait();
    EXPECT(in == data(left(), in.size(), out_parts));
    pair.free();
  }
}

MPI_CASE(PartitionedMessagesMatchInTheOrderOfTheirInitsAndNotOfTheirStarts) {
  std::vector<int> out[2] = {data(rank(), 60, 1), data(rank(), 60, 2)};
  std::vector<int> in[2] = {std::vector<int>(60, -1), std::vector<int>(60, -1)};
  Pair pairs[2];
  for (int i = 0; i < 2; ++i) pairs[i] = pair_of(out[i], 3, in[i], 3, 9);
  for (const int i : {1, 0}) {
    pairs[i].start();
    MPI_Pready_range(0, 2, pairs[i].send);
  }
  // A receive may begin after all of its data have come.
  for (const int i : {0, 1}) pairs[i].wait();
  EXPECT(in[0] == data(left(), 60, 1) && in[1] == data(left(), 60, 2));
  for (Pair& pair : pairs) pair.free();
}

MPI_CASE(PartsGoToMemoryWithHoles) {
  constexpr int kParts = 3;
  MPI_Datatype every_second;
  MPI_Type_vector(4, 1, 2, MPI_INT, &every_second);
  MPI_Datatype padded;
  MPI_Type_create_resized(every_second, 0, 8 * sizeof(int), &padded);
  MPI_Type_commit(&padded);
  std::vector<int> out = data(rank(), 12, 3);
  std::vector<int> in(24, -1);
  Pair pair;
  MPI_Psend_init(out.data(), 4, 3, MPI_INT, right(), 0, MPI_COMM_WORLD, MPI_INFO_NULL, &pair.send);
  MPI_Precv_init(in.data(), kParts, 1, padded, left(), 0, MPI_COMM_WORLD, MPI_INFO_NULL,
                 &pair.receive);
  MPI_Type_free(&padded);
  MPI_Type_free(&every_second);
  pair.start();
  const int parts[] = {3, 1, 0, 2};
  MPI_Pready_list(4, parts, pair.send);
  pair.wait();
  std::vector<int> expected(24, -1);
  for (std::size_t i = 0; i < 12; ++i) expected[2 * i] = datum(left(), i, 3);
  EXPECT(in == expected);
  pair.free();
}

MPI_CASE(APartThatIsSaidTwiceAndOneThatIsNoneAreRefused) {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  int out = 5;
  int in = -1;
  Pair pair;
  MPI_Psend_init(&out, 1, 1, MPI_INT, rank(), 0, copy, MPI_INFO_NULL, &pair.send);
  MPI_Precv_init(&in, 1, 1, MPI_INT, rank(), 0, copy, MPI_INFO_NULL, &pair.receive);
  EXPECT(class_of(MPI_Pready(0, pair.send)) == MPI_ERR_REQUEST);  // not started
  pair.start();
  EXPECT(class_of(MPI_Pready(1, pair.send)) == MPI_ERR_ARG);
  EXPECT(class_of(MPI_Pready(0, pair.receive)) == MPI_ERR_REQUEST);
  EXPECT(MPI_Pready(0, pair.send) == MPI_SUCCESS);
  EXPECT(class_of(MPI_Pready(0, pair.send)) == MPI_ERR_REQUEST);
  pair.wait();
  EXPECT(in == 5);
  pair.free();
  // To nobody: over at once.
  MPI_Psend_init(&out, 2, 1, MPI_INT, MPI_PROC_NULL, 0, copy, MPI_INFO_NULL, &pair.send);
  MPI_Precv_init(&in, 2, 1, MPI_INT, MPI_PROC_NULL, 0, copy, MPI_INFO_NULL, &pair.receive);
  pair.start();
  EXPECT(MPI_Pready(0, pair.send) == MPI_SUCCESS);
  MPI_Status status;
  pair.wait(&status);
  EXPECT(status.MPI_SOURCE == MPI_PROC_NULL && count_of(status) == 0);
  pair.free();
  MPI_Comm_free(&copy);
}

}  // namespace
}  // namespace tutti::test
