// Collectives, against what every rank can compute by itself.
#include <algorithm>
#include <numeric>

#include "tests/bindings/mpi/cases/cases.h"

namespace tutti::test {
namespace {

constexpr int kEach = 37;

std::vector<int> of_all(int count, int use = 0) {
  std::vector<int> all;
  for (int r = 0; r < size(); ++r) {
    const std::vector<int> one = data(r, static_cast<std::size_t>(count), use);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// What rank `from` sends to rank `to`.
int between(int from, int to, int i) { return datum(from, static_cast<std::size_t>(i), 1 + to); }

std::vector<int> for_all(int from, int each) {
  std::vector<int> all;
  for (int to = 0; to < size(); ++to) {
    for (int i = 0; i < each; ++i) all.push_back(between(from, to, i));
  }
  return all;
}
std::vector<int> from_all(int to, int each) {
  std::vector<int> all;
  for (int from = 0; from < size(); ++from) {
    for (int i = 0; i < each; ++i) all.push_back(between(from, to, i));
  }
  return all;
}

MPI_CASE(ARootGivesItsDataToAll) {
  for (int root = 0; root < size(); ++root) {
    std::vector<int> both = data(rank(), kEach);
    MPI_Bcast(both.data(), kEach, MPI_INT, root, MPI_COMM_WORLD);
    EXPECT(both == data(root, kEach));
  }
}

MPI_CASE(TypesOfOneSignatureMayDifferFromRankToRank) {
  MPI_Datatype pairs;
  MPI_Type_vector(kEach, 1, 2, MPI_INT, &pairs);
  MPI_Type_commit(&pairs);
  std::vector<int> both = data(rank(), 2 * kEach);
  MPI_Bcast(both.data(), rank() % 2 == 0 ? 1 : kEach, rank() % 2 == 0 ? pairs : MPI_INT, 0,
            MPI_COMM_WORLD);
  for (std::size_t i = 0; i < kEach; ++i) {
    EXPECT(both[rank() % 2 == 0 ? 2 * i : i] == datum(0, 2 * i));
  }
  MPI_Type_free(&pairs);
}

MPI_CASE(BlocksAreGatheredInTheOrderOfTheRanks) {
  for (int root = 0; root < size(); ++root) {
    const std::vector<int> own = data(rank(), kEach);
    std::vector<int> all(static_cast<std::size_t>(kEach * size()), -1);
    MPI_Gather(own.data(), kEach, MPI_INT, all.data(), kEach, MPI_INT, root, MPI_COMM_WORLD);
    EXPECT(rank() != root || all == of_all(kEach));
  }
  std::vector<int> all(static_cast<std::size_t>(kEach * size()), -1);
  const std::vector<int> own = data(rank(), kEach);
  std::copy(own.begin(), own.end(), all.begin() + rank() * kEach);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), kEach, MPI_INT, MPI_COMM_WORLD);
  EXPECT(all == of_all(kEach));
}

MPI_CASE(ARootScattersABlockToEach) {
  for (int root = 0; root < size(); ++root) {
    const std::vector<int> all = for_all(root, kEach);
    std::vector<int> own(kEach, -1);
    MPI_Scatter(rank() == root ? all.data() : nullptr, kEach, MPI_INT, own.data(), kEach, MPI_INT,
                root, MPI_COMM_WORLD);
    for (int i = 0; i < kEach; ++i)
      EXPECT(own[static_cast<std::size_t>(i)] == between(root, rank(), i));
  }
}

MPI_CASE(AllToAllTransposesBlocksAlsoInPlace) {
  for (const int each : {1, kEach, 5000}) {
    const std::vector<int> out = for_all(rank(), each);
    std::vector<int> in(out.size(), -1);
    MPI_Alltoall(out.data(), each, MPI_INT, in.data(), each, MPI_INT, MPI_COMM_WORLD);
    EXPECT(in == from_all(rank(), each));
    std::vector<int> both = out;
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, both.data(), each, MPI_INT, MPI_COMM_WORLD);
    EXPECT(both == from_all(rank(), each));
  }
}

MPI_CASE(BlocksOfUnequalLengthGoWhereTheyBelong) {
  const int n = size();
  std::vector<int> counts;
  std::vector<int> places;
  int at = 0;
  for (int r = 0; r < n; ++r) {
    counts.push_back(3 * r + 1);
    places.push_back(at);
    at += counts.back() + 2;  // with gaps
  }
  const std::vector<int> own = data(rank(), static_cast<std::size_t>(3 * rank() + 1));
  std::vector<int> expected(static_cast<std::size_t>(at), -1);
  for (int r = 0; r < n; ++r) {
    for (int i = 0; i < 3 * r + 1; ++i) {
      expected[static_cast<std::size_t>(places[static_cast<std::size_t>(r)] + i)] =
          datum(r, static_cast<std::size_t>(i));
    }
  }
  std::vector<int> all(static_cast<std::size_t>(at), -1);
  MPI_Allgatherv(own.data(), 3 * rank() + 1, MPI_INT, all.data(), counts.data(), places.data(),
                 MPI_INT, MPI_COMM_WORLD);
  EXPECT(all == expected);
  std::fill(all.begin(), all.end(), -1);
  MPI_Gatherv(own.data(), 3 * rank() + 1, MPI_INT, all.data(), counts.data(), places.data(),
              MPI_INT, n - 1, MPI_COMM_WORLD);
  EXPECT(rank() != n - 1 || all == expected);
  std::vector<int> back(own.size(), -2);
  MPI_Scatterv(expected.data(), counts.data(), places.data(), MPI_INT, back.data(), 3 * rank() + 1,
               MPI_INT, 0, MPI_COMM_WORLD);
  EXPECT(back == own);
}

MPI_CASE(EveryPairExchangesAsMuchAsItSays) {
  const int n = size();
  std::vector<int> out_counts, out_places, in_counts, in_places, out;
  int in_all = 0;
  for (int r = 0; r < n; ++r) {
    out_counts.push_back(rank() + 2 * r);
    out_places.push_back(static_cast<int>(out.size()));
    for (int i = 0; i < rank() + 2 * r; ++i) out.push_back(between(rank(), r, i));
    in_counts.push_back(r + 2 * rank());
    in_places.push_back(in_all);
    in_all += r + 2 * rank();
  }
  std::vector<int> expected;
  for (int r = 0; r < n; ++r) {
    for (int i = 0; i < r + 2 * rank(); ++i) expected.push_back(between(r, rank(), i));
  }
  std::vector<int> in(static_cast<std::size_t>(in_all), -1);
  MPI_Alltoallv(out.data(), out_counts.data(), out_places.data(), MPI_INT, in.data(),
                in_counts.data(), in_places.data(), MPI_INT, MPI_COMM_WORLD);
  EXPECT(in == expected);
  std::fill(in.begin(), in.end(), -1);
  for (int& p : out_places) p *= 4;
  for (int& p : in_places) p *= 4;
  const std::vector<MPI_Datatype> types(static_cast<std::size_t>(n), MPI_INT);
  MPI_Alltoallw(out.data(), out_counts.data(), out_places.data(), types.data(), in.data(),
                in_counts.data(), in_places.data(), types.data(), MPI_COMM_WORLD);
  EXPECT(in == expected);
}

template <class T>
void sums(MPI_Datatype type) {
  for (const int n : {1, 5, 1000}) {
    std::vector<T> own;
    std::vector<T> sum(static_cast<std::size_t>(n));
    std::vector<T> prefix(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) own.push_back(static_cast<T>((rank() + 1) * (i % 5 + 1)));
    for (int r = 0; r < size(); ++r) {
      for (int i = 0; i < n; ++i) {
        const T one = static_cast<T>((r + 1) * (i % 5 + 1));
        sum[static_cast<std::size_t>(i)] = static_cast<T>(sum[static_cast<std::size_t>(i)] + one);
        if (r <= rank()) {
          prefix[static_cast<std::size_t>(i)] =
              static_cast<T>(prefix[static_cast<std::size_t>(i)] + one);
        }
      }
    }
    std::vector<T> out(static_cast<std::size_t>(n));
    MPI_Allreduce(own.data(), out.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(out == sum);
    out = own;
    MPI_Allreduce(MPI_IN_PLACE, out.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(out == sum);
    MPI_Scan(own.data(), out.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(out == prefix);
    MPI_Reduce(own.data(), out.data(), n, type, MPI_SUM, size() - 1, MPI_COMM_WORLD);
    EXPECT(rank() != size() - 1 || out == sum);
    MPI_Exscan(own.data(), out.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT(rank() == 0 || out[i] == static_cast<T>(prefix[i] - own[i]));
    }
  }
}

MPI_CASE(SumsOfEveryWidthAreExact) {
  sums<std::int8_t>(MPI_INT8_T);
  sums<std::int16_t>(MPI_INT16_T);  // which Tutti itself does not reduce
  sums<std::int32_t>(MPI_INT);
  sums<std::uint64_t>(MPI_UINT64_T);
  sums<float>(MPI_FLOAT);
  sums<double>(MPI_DOUBLE);
  sums<long double>(MPI_LONG_DOUBLE);
}

MPI_CASE(APlaceOfTheLargestIsFound) {
  struct {
    double value;
    int place;
  } own{static_cast<double>((rank() * 7) % size()), rank()}, best{};
  MPI_Allreduce(&own, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  EXPECT(best.value == size() - 1 && (best.place * 7) % size() == size() - 1);
}

// Of 2 x 2 matrices, whose product depends on the order.
void multiply(void* in, void* in_out, int* n, MPI_Datatype*) {
  auto* a = static_cast<std::uint32_t*>(in);
  auto* b = static_cast<std::uint32_t*>(in_out);
  for (int i = 0; i < *n; ++i, a += 4, b += 4) {
    const std::uint32_t c[] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                               a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
    std::copy(c, c + 4, b);
  }
}
std::vector<std::uint32_t> matrices(int of) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < 4 * 20; ++i)
    all.push_back(static_cast<std::uint32_t>(of + 2) * 31 + i);
  return all;
}

MPI_CASE(AnOperatorOfTheProgramIsAppliedInTheOrderOfTheRanks) {
  MPI_Datatype matrix;
  MPI_Type_contiguous(4, MPI_UINT32_T, &matrix);
  MPI_Type_commit(&matrix);
  MPI_Op op;
  MPI_Op_create(multiply, 0, &op);
  std::vector<std::uint32_t> product = matrices(0);
  int n = 20;
  std::vector<std::uint32_t> prefix = product;
  for (int r = 1; r < size(); ++r) {
    std::vector<std::uint32_t> next = matrices(r);
    multiply(product.data(), next.data(), &n, nullptr);
    product = next;
    if (r <= rank()) prefix = product;
  }
  const std::vector<std::uint32_t> own = matrices(rank());
  std::vector<std::uint32_t> out(own.size());
  MPI_Allreduce(own.data(), out.data(), 20, matrix, op, MPI_COMM_WORLD);
  EXPECT(out == product);
  MPI_Scan(own.data(), out.data(), 20, matrix, op, MPI_COMM_WORLD);
  EXPECT(out == prefix);
  MPI_Reduce(own.data(), out.data(), 20, matrix, op, 0, MPI_COMM_WORLD);
  EXPECT(rank() != 0 || out == product);
  MPI_Op_free(&op);
  MPI_Type_free(&matrix);
}

MPI_CASE(EachRankGetsItsBlockOfAReduction) {
  for (const MPI_Datatype type : {MPI_INT, MPI_UINT32_T}) {
    std::vector<int> out(kEach);
    std::vector<int> both = for_all(rank(), kEach);
    std::vector<int> expected(kEach, 0);
    for (int r = 0; r < size(); ++r) {
      for (int i = 0; i < kEach; ++i) {
        expected[static_cast<std::size_t>(i)] =
            static_cast<int>(static_cast<unsigned>(expected[static_cast<std::size_t>(i)]) +
                             static_cast<unsigned>(between(r, rank(), i)));
      }
    }
    MPI_Reduce_scatter_block(both.data(), out.data(), kEach, type, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(out == expected);
    const std::vector<int> counts(static_cast<std::size_t>(size()), kEach);
    MPI_Reduce_scatter(both.data(), out.data(), counts.data(), type, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(out == expected);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, both.data(), kEach, type, MPI_SUM, MPI_COMM_WORLD);
    both.resize(kEach);
    EXPECT(both == expected);
  }
}

MPI_CASE(CollectivesGoOnSideBySideAndWithMessages) {
  const int right = (rank() + 1) % size();
  const int left = (rank() + size() - 1) % size();
  std::vector<int> sum(kEach);
  std::vector<int> all(static_cast<std::size_t>(kEach * size()));
  const std::vector<int> own = data(rank(), kEach);
  const std::vector<int> large = data(rank(), 100000);
  std::vector<int> in(large.size());
  MPI_Request requests[5];
  MPI_Iallreduce(own.data(), sum.data(), kEach, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(large.data(), 100000, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[1]);
  MPI_Iallgather(own.data(), kEach, MPI_INT, all.data(), kEach, MPI_INT, MPI_COMM_WORLD,
                 &requests[2]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[3]);
  MPI_Irecv(in.data(), 100000, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[4]);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
  EXPECT(in == data(left, 100000) && all == of_all(kEach));
  for (std::size_t i = 0; i < kEach; ++i) {
    int most = datum(0, i);
    for (int r = 1; r < size(); ++r) most = std::max(most, datum(r, i));
    EXPECT(sum[i] == most);
  }
}

MPI_CASE(APersistentCollectiveReadsItsBufferAnewEachTime) {
  int own = 0;
  int sum = 0;
  MPI_Request request;
  MPI_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int round = 0; round < 20; ++round) {
    own = (rank() + 1) * (round + 1);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(sum == size() * (size() + 1) / 2 * (round + 1));
  }
  MPI_Request_free(&request);
}

MPI_CASE(NeighborsOnARingOfAnyLengthSendToBothSides) {
  int dims[1] = {size()};
  int periods[1] = {1};
  MPI_Comm ring;
  MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
  const int own[2] = {datum(rank(), 0), datum(rank(), 1)};  // to the left, to the right
  int in[2] = {-1, -1};
  MPI_Neighbor_alltoall(own, 1, MPI_INT, in, 1, MPI_INT, ring);
  EXPECT(in[0] == datum((rank() + size() - 1) % size(), 1));
  EXPECT(in[1] == datum((rank() + 1) % size(), 0));
  MPI_Comm_free(&ring);
}

MPI_CASE(WhatAStartedGatherPacksStaysThereUntilItIsOver) {
  MPI_Datatype column;
  MPI_Type_vector(12, 1, 10, MPI_INT, &column);
  MPI_Type_commit(&column);
  for (int root = 0; root < size(); ++root) {
    for (int round = 0; round < 50; ++round) {
      std::vector<int> in(120, -1);
      for (std::size_t i = 0; i < 12; ++i) in[10 * i] = datum(rank(), i, round);
      std::vector<int> out(static_cast<std::size_t>(12 * size()), -1);
      MPI_Request request;
      MPI_Igather(in.data(), 1, column, out.data(), 12, MPI_INT, root, MPI_COMM_WORLD, &request);
      // Memory of that size that was given back by mistake is overwritten here.
      const std::vector<int> other(12, 77);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      if (rank() == root) EXPECT(out == of_all(12, round));
      EXPECT(other[11] == 77);
    }
  }
  MPI_Type_free(&column);
}

MPI_CASE(PersistentCollectivesStartInAnyOrder) {
  constexpr int kRequests = 3, kInts = 500;
  std::vector<std::vector<int>> out, in(kRequests, std::vector<int>(kInts));
  std::vector<MPI_Request> requests(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    out.push_back(data(rank(), kInts, i));
    const auto k = static_cast<std::size_t>(i);
    MPI_Allreduce_init(out[k].data(), in[k].data(), kInts, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &requests[k]);
  }
  for (int round = 0; round < 3; ++round) {
    for (std::vector<int>& each : in) std::fill(each.begin(), each.end(), -1);
    for (int i = 0; i < kRequests; ++i)
      MPI_Start(&requests[static_cast<std::size_t>((i + rank() + round) % kRequests)]);
    MPI_Waitall(kRequests, requests.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < kRequests; ++i) {
      std::vector<int> sum(kInts);
      for (int r = 0; r < size(); ++r) {
        const std::vector<int> theirs = data(r, kInts, i);
        for (std::size_t k = 0; k < kInts; ++k) {
          sum[k] =
              static_cast<int>(static_cast<unsigned>(sum[k]) + static_cast<unsigned>(theirs[k]));
        }
      }
      EXPECT(in[static_cast<std::size_t>(i)] == sum);
    }
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

}  // namespace
}  // namespace tutti::test
