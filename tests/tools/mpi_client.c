/* A library that needs procedures of MPI which Tutti has, refuses, and has not. */
int MPI_Init(void);
int PMPI_Send(void);
int MPI_File_open(void);
int MPI_T_init_thread(void);
int MPIX_Of_tomorrow(void);
__attribute__((weak)) int MPI_Open_port(void);
extern int MPI_UNWEIGHTED;

int client(void) {
  int sum = MPI_Init() + PMPI_Send() + MPI_File_open() + MPI_T_init_thread() + MPIX_Of_tomorrow();
  return MPI_Open_port ? sum + MPI_Open_port() : sum + MPI_UNWEIGHTED;
}
