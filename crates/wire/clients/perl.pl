# One client of `run`: perl perl.pl URL SCRIPT. Sends every line of SCRIPT, prints every message, and ends with the
# marker.
use Mojo::Base -strict;
use Mojo::IOLoop;
use Mojo::UserAgent;
use Mojo::Util qw(decode encode);

my ($url, $script) = @ARGV;
open my $file, '<:encoding(UTF-8)', $script or die $!;
chomp(my @lines = <$file>);
$| = 1;

my $agent = Mojo::UserAgent->new(max_response_size => 0, inactivity_timeout => 0);
my $asked = $agent->build_websocket_tx($url);
$asked->req->headers->sec_websocket_extensions('permessage-deflate');
$agent->start(
    $asked => sub {
        my ($agent, $socket) = @_;
        die 'no WebSocket: ', $socket->res->code // 'no answer', "\n" unless $socket->is_websocket;
        $socket->max_websocket_size(1 << 28);
        $socket->on(text => sub {
            my ($socket, $bytes) = @_;
            print $bytes, "\n";
            Mojo::IOLoop->stop if index($bytes, 'the end of the campaign') >= 0;
        });
        $socket->on(finish => sub { Mojo::IOLoop->stop });
        $socket->send($_) for @lines;
    }
);
Mojo::IOLoop->start;
