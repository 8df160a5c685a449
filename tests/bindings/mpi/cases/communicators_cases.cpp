// Communicators, groups, and errors.
#include <algorithm>
#include <thread>

#include "tests/bindings/mpi/cases/cases.h"

namespace tutti::test {
namespace {

MPI_CASE(MessagesOfACopyDoNotMeetThoseOfTheOriginal) {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  int result = -1;
  MPI_Comm_compare(copy, MPI_COMM_WORLD, &result);
  EXPECT(result == MPI_CONGRUENT);
  const int next = (rank() + 1) % size();
  const int before = (rank() + size() - 1) % size();
  const int values[] = {datum(rank(), 0), datum(rank(), 1)};
  MPI_Request sends[2];
  MPI_Isend(&values[0], 1, MPI_INT, next, 0, MPI_COMM_WORLD, &sends[0]);
  MPI_Isend(&values[1], 1, MPI_INT, next, 0, copy, &sends[1]);
  int in[2] = {-1, -1};
  MPI_Recv(&in[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, copy, MPI_STATUS_IGNORE);
  MPI_Recv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  EXPECT(in[0] == datum(before, 0) && in[1] == datum(before, 1));
  MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
  MPI_Comm_free(&copy);
  EXPECT(copy == MPI_COMM_NULL);
}

MPI_CASE(ASplitOrdersItsRanksByTheirKeys) {
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, rank() % 2, -rank(), &part);
  int own = -1;
  int n = -1;
  MPI_Comm_rank(part, &own);
  MPI_Comm_size(part, &n);
  std::vector<int> all(static_cast<std::size_t>(n));
  const int mine = rank();
  MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, part);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT(all[i] % 2 == rank() % 2 && (i == 0 || all[i] == all[i - 1] - 2));
  }
  EXPECT(all[static_cast<std::size_t>(own)] == rank());
  MPI_Comm none;
  MPI_Comm_split(part, own == 0 ? MPI_UNDEFINED : 0, 0, &none);
  EXPECT((none == MPI_COMM_NULL) == (own == 0));
  if (none != MPI_COMM_NULL) MPI_Comm_free(&none);
  MPI_Comm_free(&part);
}

MPI_CASE(OnlyTheMembersOfAGroupMakeItsCommunicator) {
  MPI_Group world;
  MPI_Group odd;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  std::vector<int> ranks;
  for (int r = size() - 1; r >= 0; --r) {
    if (r % 2 == 1 || size() == 1) ranks.push_back(r);
  }
  MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &odd);
  if (std::ranges::find(ranks, rank()) != ranks.end()) {
    MPI_Comm comm;
    MPI_Comm_create_group(MPI_COMM_WORLD, odd, 3, &comm);
    int own = -1;
    MPI_Comm_rank(comm, &own);
    EXPECT(ranks[static_cast<std::size_t>(own)] == rank());
    int sum = 0;
    const int one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    EXPECT(sum == static_cast<int>(ranks.size()));
    MPI_Comm_free(&comm);
  }
  MPI_Comm comm;
  MPI_Comm_create(MPI_COMM_WORLD, odd, &comm);
  EXPECT((comm == MPI_COMM_NULL) == (std::ranges::find(ranks, rank()) == ranks.end()));
  if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  MPI_Group_free(&odd);
  MPI_Group_free(&world);
}

MPI_CASE(TwoSidesOfAnIntercommunicatorTalkAndMerge) {
  if (size() < 2) return;
  MPI_Comm side;
  const bool low = rank() < size() / 2;
  MPI_Comm_split(MPI_COMM_WORLD, low ? 0 : 1, rank(), &side);
  MPI_Comm inter;
  MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, low ? size() / 2 : 0, 11, &inter);
  int there = -1;
  int own = -1;
  MPI_Comm_remote_size(inter, &there);
  MPI_Comm_rank(inter, &own);
  EXPECT(there == (low ? size() - size() / 2 : size() / 2));
  const int mine = datum(rank(), 0);
  std::vector<int> all(static_cast<std::size_t>(there));
  MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, inter);
  for (int r = 0; r < there; ++r) {
    EXPECT(all[static_cast<std::size_t>(r)] == datum(low ? size() / 2 + r : r, 0));
  }
  if (own == 0) {
    int got = -1;
    MPI_Sendrecv(&mine, 1, MPI_INT, 0, 2, &got, 1, MPI_INT, 0, 2, inter, MPI_STATUS_IGNORE);
    EXPECT(got == datum(low ? size() / 2 : 0, 0));
  }
  MPI_Comm merged;
  MPI_Intercomm_merge(inter, low ? 1 : 0, &merged);
  int merged_rank = -1;
  MPI_Comm_rank(merged, &merged_rank);
  EXPECT(merged_rank == (low ? size() - size() / 2 + rank() : rank() - size() / 2));
  MPI_Comm_free(&merged);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&side);
}

MPI_CASE(AGroupMakesACommunicatorWhileOthersOfTheParentAreBusy) {
  // A copy is under way that rank 0 begins last; meanwhile the others make theirs.
  MPI_Comm copy;
  MPI_Request request;
  MPI_Group all;
  MPI_Group group;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  const int first = 0;
  MPI_Group_excl(all, 1, &first, &group);
  MPI_Comm made[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  if (rank() != 0) {
    MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
    // By two threads at once, in another order on each rank: the tag says which is which.
    std::thread other([&] {
      const int tag = rank() % 2;
      MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made[tag]);
    });
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 1 - rank() % 2, &made[1 - rank() % 2]);
    other.join();
    for (int i = 0; i < 2; ++i) {
      const int own = datum(rank(), 0, i);
      int sum = 0;
      MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, made[i]);
      int expected = 0;
      for (int r = 1; r < size(); ++r) expected += datum(r, 0, i);
      EXPECT(sum == expected);
      MPI_Comm_free(&made[i]);
    }
    MPI_Send(nullptr, 0, MPI_INT, 0, 3, MPI_COMM_WORLD);
  } else {
    for (int r = 1; r < size(); ++r) {
      MPI_Recv(nullptr, 0, MPI_INT, r, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&copy);
  MPI_Group_free(&group);
  MPI_Group_free(&all);
}

MPI_CASE(ACopyThatIsMadeLaterWaitsForNobody) {
  MPI_Comm copies[2];
  MPI_Request requests[2];
  int value = -1;
  if (rank() == 0) {
    // Whoever comes late: the others have begun both copies already.
    for (int r = 1; r < size(); ++r) {
      MPI_Recv(&value, 1, MPI_INT, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  MPI_Comm_idup(MPI_COMM_WORLD, &copies[0], &requests[0]);
  MPI_Comm_idup(MPI_COMM_WORLD, &copies[1], &requests[1]);
  if (rank() != 0) MPI_Ssend(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  const int own = datum(rank(), 0);
  MPI_Request sum;
  int all = 0;
  MPI_Iallreduce(&own, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &sum);
  // In another order on each rank.
  for (const int i : {rank() % 2, 1 - rank() % 2}) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  MPI_Wait(&sum, MPI_STATUS_IGNORE);
  int expected = 0;
  for (int r = 0; r < size(); ++r) expected += datum(r, 0);
  EXPECT(all == expected);
  for (MPI_Comm& copy : copies) {
    int result = -1;
    MPI_Comm_compare(copy, MPI_COMM_WORLD, &result);
    EXPECT(result == MPI_CONGRUENT);
    all = -1;
    MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, copy);
    EXPECT(all == expected);
    // It can be parted as the original can.
    MPI_Comm half;
    MPI_Comm_split(copy, rank() % 2, 0, &half);
    int n = -1;
    MPI_Comm_size(half, &n);
    EXPECT(n == (size() + 1 - rank() % 2) / 2);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
  }
}

MPI_CASE(AWrongCallGetsItsClassAndASentence) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int value = 0;
  EXPECT(class_of(MPI_Send(&value, 1, MPI_INT, size(), 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
  EXPECT(class_of(MPI_Send(&value, 1, MPI_INT, 0, -5, MPI_COMM_WORLD)) == MPI_ERR_TAG);
  EXPECT(class_of(MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
  EXPECT(class_of(MPI_Send(nullptr, 1, MPI_INT, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_BUFFER);
  EXPECT(class_of(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
  EXPECT(class_of(MPI_Bcast(&value, 1, MPI_INT, -1, MPI_COMM_WORLD)) == MPI_ERR_ROOT);
  EXPECT(class_of(MPI_Allreduce(&value, &value, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD)) ==
         MPI_ERR_OP);
  MPI_Request send;
  const std::vector<int> out = data(rank(), 10);
  MPI_Isend(out.data(), 10, MPI_INT, rank(), 0, MPI_COMM_WORLD, &send);
  std::vector<int> in(5);
  const int code = MPI_Recv(in.data(), 4, MPI_INT, rank(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  EXPECT(class_of(code) == MPI_ERR_TRUNCATE);
  EXPECT(text_of(code).find("has 40 bytes, but the receive has room for 16") != std::string::npos);
  EXPECT(in[3] == datum(rank(), 3) && in[4] == 0);
  MPI_Wait(&send, MPI_STATUS_IGNORE);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

MPI_CASE(AFreedHandleIsNoticed) {
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  const MPI_Comm stale = copy;
  MPI_Comm_free(&copy);
  int n = -1;
  EXPECT(class_of(MPI_Comm_size(stale, &n)) == MPI_ERR_COMM);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

}  // namespace
}  // namespace tutti::test
